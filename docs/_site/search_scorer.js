// Sphinx asks this for the place of each result of a search; the last element of a result says where the words were.
// A heading that has them all, in this order, is what was meant: it comes before pages that have them anywhere.
// Pages that tell how Paceline came to be as it is have the words of many questions: they come behind the others.
const BACKGROUND = /^(CHANGELOG|docs\/questions|docs\/decisions\/|docs\/rules|docs\/seams|docs\/mechanisms|docs\/architecture|benchmarks\/)/;
const BEHIND = 0.2;
const HEADING = 4;

var Scorer = {
  score: ([page, , , , score, , kind]) =>
    score * (BACKGROUND.test(page) ? BEHIND : 1) * (kind === "title" ? HEADING : 1),
  // Sphinx's own:
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
