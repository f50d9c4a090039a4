// A board played at random, or with a schedule led to: `node puzzle_answers.mjs GAME` prints every attempt, and where
// all runs are in the end.

import { readFileSync } from "node:fs";
import { Puzzle } from "../../pages/parts/learn/puzzle.mjs";

const { plan, placed, seed, reach, attempts, target, periods } = JSON.parse(readFileSync(process.argv[2]));
const puzzle = new Puzzle(plan);
const began = puzzle.begin(placed);
let state = seed;
const chance = (below) => (state = (state * 48271) % 2147483647) % below;
const tried = [];

for (let turn = 0; turn < attempts && !puzzle.complete; turn++) {
  const [b, m] = [chance(plan.blocks.length), chance(plan.microBatches)];
  if (puzzle.start(b, m) === undefined) {
    const start = chance(reach);
    tried.push({ before: puzzle.list(), run: [b, m, start], lacks: puzzle.lacks(b, m), why: puzzle.whyNot(b, m, start), earliest: puzzle.earliest(b, m) ?? null });
    if (chance(4) === 0) puzzle.place(b, m, start);
  }
  const ready = puzzle.ready();
  if (ready.length) puzzle.place(...ready[chance(ready.length)]);
}
for (let next = target && puzzle.after(target); next; next = puzzle.after(target)) puzzle.place(...next);
console.log(JSON.stringify({ began, tried, placed: puzzle.list(), complete: puzzle.complete, makespan: puzzle.makespan, block: puzzle.block, stamped: (periods ?? []).map((each) => puzzle.whyNotStamped(each)) }));
