// What the scripts of the app share beside their modules, for `tsc --checkJs`.

interface Window {
  /** The presses of Undo and Redo in this tab (`shared/keys.mjs`). */
  tesselPresses: any;
  /** What the server has found out about the selected run (`shared/timeline/said.mjs`). */
  tesselTimelineSaid: any;
}

/** Begins a timeline; the page of a deck defines it before `parts/learn/slides.mjs`. */
declare const showTimeline: (component: object) => unknown;
