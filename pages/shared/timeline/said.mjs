// Passes the server's text about the selected run to the timeline, without sending the schedule again.

export default function ({ data }) {
  window.tesselTimelineSaid = data;
  window.dispatchEvent(new Event("tessel-timeline-said"));
}
