// What the server has to say about the selected run: handed to the timeline without sending the schedule again.

export default function ({ data }) {
  window.tesselTimelineSaid = data;
  window.dispatchEvent(new Event("tessel-timeline-said"));
}
