// SPDX-License-Identifier: Apache-2.0
// Six settings and what to look for in their plans.

const tour = [
  {title: 'Rounds', set: {model: 'llama3-8b', machine: 'h200', devices: '1', device: '60', host: '110', seq: '8192', step: '131072'},
   text: 'A step is cut into rounds, each a forward and a backward pass whose gradients add up. Find the two rows of bars above the lanes: ' +
     'while one round goes backward, the next one already goes forward.'},
  {title: 'Chunks', set: {device: '24'},
   text: 'A round passes its chunks through a layer before the next layer starts, so that a weight is brought once for all of them. Choose ' +
     'the colours “by chunk” above the timeline, zoom in until tasks have names, and follow a colour.'},
  {title: 'Streaming', set: {device: '16'},
   text: 'Weights, gradients and optimizer state of 8B take far more than 16 GiB. The load and store lanes carry them while the compute lane works. Press play, ' +
     'and watch what each lane does and how full each memory is.'},
  {title: 'Recomputation', set: {device: '16', host: '64'},
   text: 'With less host memory there is less room for what backward needs. Some activations are computed again: orange in the compute lane, and in the map of what is saved.'},
  {title: 'A tight cap', set: {device: '9', host: '64'},
   text: 'The tighter the cap, the more waits for memory. “What binds” names it. Go on until the planner refuses: it says the smallest caps that work.'},
  {title: 'A ring', set: {machine: 'rtx4090', devices: '2', device: '22', host: '110'},
   text: 'Two cards share a step: layers are dealt out, and chunks go from card to card. With the colours “by chunk” one sees a chunk arrive on the second card.'},
];
let at = -1;
async function showTour(step) {
  at = step;
  $('tour').hidden = step < 0 || step >= tour.length;
  if ($('tour').hidden) return;
  const {title, text} = tour[step];
  // Each step changes what the ones before it left.
  const set = Object.assign({}, kFirst, ...tour.slice(0, step + 1).map(one => one.set));
  for (const name of Object.keys(brought)) brought[name] = '';
  await fill(id => set[id]);
  const button = (words, to) => el('button', {type: 'button', onclick: () => showTour(to)}, words);
  $('tour').replaceChildren(el('h2', {}, `${step + 1} of ${tour.length}: ${title}`), el('p', {}, text),
    el('div', {class: 'buttons'}, ...(step > 0 ? [button('Back', step - 1)] : []), ...(step + 1 < tour.length ? [button('Next', step + 1)] : []), button('End', -1)));
  showCurve();
  plan();
}
