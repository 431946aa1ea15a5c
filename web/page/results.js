// SPDX-License-Identifier: Apache-2.0
// Answers: the plan by a rule first, then what the search found; two of them beside each other.

let shown = null, beside = null;  // answers: {answer, first, asked}
const gib = bytes => `${(bytes / kGiB).toFixed(1)} GiB`;

function download(name, content, type) {
  const url = URL.createObjectURL(new Blob([content], {type}));
  el('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
function tilesOf(plan) {
  const tile = (name, words, id) => el('span', {}, name, el('b', id ? {'data-value': String(id)} : {}, words));
  const tiles = [tile('tokens per second', Math.round(plan.tokens_per_s).toLocaleString('en-US'), plan.tokens_per_s),
                 tile('step', `${(plan.step_ns / 1e9).toFixed(3)} s`, plan.step_ns), tile('MFU', `${(100 * plan.mfu).toFixed(1)} %`),
                 tile('over the bound', `${(100 * (plan.step_ns / plan.lower_bound_ns - 1)).toFixed(1)} %`), tile('what binds', plan.binds)];
  for (const tier of ['device', 'host']) tiles.push(tile(`${tier} memory used`, gib(plan[tier].peak_bytes + plan[tier].overhead_bytes)));
  return el('div', {class: 'tiles'}, ...tiles);
}
// Where the speeds come from.
function sourceWords() {
  if (brought.machine) return `Rates are those of ${brought.machineName}.`;
  const machine = machineOf($('machine').value);
  return `Rates of ${machine.card}: ${machine.reached}. ` + (machine.compared ? 'Speeds planned for it were compared with measured ones: docs/machines.md says how far off they were.' :
    'No speed planned for it was compared with a measured one: the rates of its products are what the answer rests on most.');
}
function answerNode(one) {
  const {answer, first} = one, node = el('article', {class: 'card answer', 'data-first': String(first)});
  const title = first ? ['A first answer', el('span', {class: 'mark'}, 'by a rule, not searched')] : ['The plan', el('span', {class: 'mark'}, 'searched')];
  node.append(el('h2', {}, ...title), el('p', {class: 'muted'}, one.words));
  if (answer.error) {
    node.append(el('p', {class: 'error'}, answer.error));
    return node;
  }
  const plan = JSON.parse(answer.plan);
  node.append(tilesOf(plan), el('p', {class: 'muted'}, one.source));
  if (first) return node;
  const frame = el('iframe', {title: 'The plan, explained', srcdoc: answer.page});
  frame.addEventListener('load', () => {
    const fit = () => { frame.style.height = `${frame.contentDocument.documentElement.scrollHeight + 4}px`; };
    frame.contentWindow.setTheme(document.documentElement.dataset.theme);
    fit();
    setTimeout(fit, 300);
  });
  const save = (words, act) => el('button', {type: 'button', onclick: act}, words);
  node.append(el('div', {class: 'buttons'},
    save('JSON', () => download('plan.json', answer.plan, 'application/json')),
    save('Page', () => download('plan.html', answer.page, 'text/html')),
    save('SVG', () => download('plan.svg', frame.contentWindow.viewAsSvg(), 'image/svg+xml')),
    save('PNG', () => frame.contentDocument.getElementById('timeline').toBlob(picture => download('plan.png', picture, 'image/png')))), frame);
  return node;
}
function showAnswers() {
  $('answers').className = beside && shown ? 'two' : '';
  $('answers').replaceChildren(...[beside, shown].filter(Boolean).map(answerNode));
  $('beside').hidden = !beside && !(shown && !shown.first && !shown.answer.error);
}

async function plan() {
  if (!$('controls').reportValidity()) return;
  planner.stop();
  quick.stop();
  const run = plan.run = (plan.run ?? 0) + 1;
  const asked = request(), began = performance.now();
  const words = [brought.modelName || $('model').value, `${$('device').value} GiB of device memory`, `${$('host').value} GiB of host memory`,
                 `${Number($('step').value).toLocaleString('en-US')} tokens a step`].join(', ');
  const told = (answer, first) => ({answer, first, words, source: sourceWords()});
  keepInAddress();
  $('command').textContent = commandLine();
  $('same').hidden = false;
  $('stop').hidden = false;
  $('doing').textContent = 'searching';
  document.body.dataset.busy = 'yes';
  const seconds = () => ((performance.now() - began) / 1000).toFixed(0);
  let doing = 'searching';
  const clock = setInterval(() => { $('doing').textContent = `${doing}, ${seconds()} s`; }, 500);
  quick.ask('first', asked).then(answer => {
    if (run !== plan.run || !answer || answer.error || document.body.dataset.busy !== 'yes') return;
    shown = told(answer, true);
    document.body.dataset.firstMs = String(Math.round(performance.now() - began));
    showAnswers();
  });
  const answer = await planner.ask('plan', asked, (what, done) => { doing = done > 0 ? `${what}: ${done} looked at` : what; });
  clearInterval(clock);
  if (run !== plan.run) return;
  document.body.dataset.busy = 'no';
  $('stop').hidden = true;
  if (!answer) { $('doing').textContent = `stopped after ${seconds()} s`; return; }
  $('doing').textContent = `${answer.error ? 'refused' : 'planned'} in ${((performance.now() - began) / 1000).toFixed(1)} s`;
  document.body.dataset.planMs = String(Math.round(performance.now() - began));
  shown = told(answer, false);
  showAnswers();
}
