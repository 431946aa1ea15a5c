// SPDX-License-Identifier: Apache-2.0
// Answers: what counting says and the plan by a rule first, then what the search found; two of them beside each other.

// Answers: {answer, kind, words, source}, where kind is "formula", "first" or "searched".
let shown = null, beside = null;
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
                 tile('gap to the bound', `${(100 * (plan.step_ns / plan.lower_bound_ns - 1)).toFixed(1)} %`), tile('what binds', plan.binds)];
  for (const tier of ['device', 'host']) tiles.push(tile(`${tier} memory used`, gib(plan[tier].peak_bytes + plan[tier].overhead_bytes)));
  return el('div', {class: 'tiles'}, ...tiles);
}
// How far predictions for a machine were off.
function errorWords(key) {
  const off = choices.machines.find(m => m.key === key)?.off_by;
  return off ? `planned speeds were off by ${off}` : 'no speed planned for it was compared with a measured one';
}
// Where the speeds come from.
function sourceWords() {
  const machine = machineNow();
  if (!machine) return '';  // a file that cannot be read, of which there is no plan
  const errors = setRates().length ? 'some are set here, and no speed planned for those was compared with a measured one' :
    errorWords(brought.machine ? '' : machine.key);
  return `Estimated, nothing here is timed. Rates of ${brought.machineName || machine.card}: ${machine.reached || 'of no said source'}; ${errors}.`;
}
// What an answer for the machine that is chosen now rests on most, by what binds.
function assumptionWords() {
  const machine = machineNow();
  if (!machine) return () => '';
  const rate = id => `${rateNow(id)} ${kRates[id].words}`, from = (id, source) => $(id).value !== '' ? 'set here' : source || 'of no said source';
  const products = `steps reach ${rate('flops')} in matrix products (${from('flops', machine.reached)})`,
        link = `the link carries ${rate('link')} from the host while it carries as much back (${from('link', machine.link)})`;
  return binds => `The answer rests most on this: ${/^compute|recomputation|ring/.test(binds) ? products : link}.`;
}
const kTitles = {formula: ['By formula', 'counted, nothing planned yet'], first: ['A first plan', 'made by a rule; the search goes on'], searched: ['The plan', 'searched']};
// What to do about what binds.
const kBinds = [[/^compute/, 'The card computes nearly all of the time: only a faster one helps.'],
                [/^the host-to-device link/, 'The link that brings weights and data to the card is busy all of the time: a faster link helps, or more device memory.'],
                [/^the device-to-host link/, 'The link that takes results from the card is busy all of the time: a faster link helps, or more device memory.'],
                [/network/, 'What processes tell each other over the network is waited for.'],
                [/ring/, 'Cards wait for one another: larger steps, or other numbers of cards, help.'],
                [/^device and host memory, through recomp/, 'Much is computed a second time, because neither memory has room to keep it: more of either helps.'],
                [/^host memory, through recomp/, 'Much is computed a second time, because the host has no room to keep it: more host memory helps.'],
                [/through recomp/, 'Much is computed a second time, because the card has no room to keep it: more device memory helps.'],
                [/through loads/, 'The card waits for what could not be brought earlier, as there was no room for it: more device memory helps.'],
                [/through stores/, 'The card waits until results have left it, which makes room: more device memory helps.']];
const bindsWords = binds => kBinds.find(([of]) => of.test(binds))?.[1] ?? '';
// What counting says of a step and of the least caps.
function formulaNodes({least_ns, compute_ns, loading_ns, device_bytes, all_bytes, tokens}, caps) {
  const many = caps.devices > 1;
  const tile = (name, words) => el('span', {}, name, el('b', {}, words)), tiles = el('div', {class: 'tiles'},
    tile('tokens per second, at most', Math.round(tokens / least_ns * 1e9).toLocaleString('en-US')), tile('step, at least', `${(least_ns / 1e9).toFixed(3)} s`));
  const words = [compute_ns >= loading_ns ? 'Computing alone takes that long, whatever the memories.' : 'What the card has no room for takes that long to come over the link once.'];
  tiles.append(tile(`device memory${many ? ' of each' : ''}, at least`, gib(device_bytes)),
               tile(`${many ? 'all' : 'both'} memories together, at least`, gib(all_bytes)));
  words.push('The least memories are for computing with one sequence at a time; a plan takes a little more.');
  if (caps.device < device_bytes || caps.devices * caps.device + caps.host < all_bytes)
    words.push('You chose less: expect that there is no plan, or one that cuts sequences into pieces.');
  return [tiles, el('p', {class: 'muted'}, words.join(' '))];
}
function answerNode(one) {
  const {answer, kind} = one, node = el('article', {class: 'card answer', 'data-kind': kind}), [title, mark] = kTitles[kind];
  node.append(el('h2', {}, title, el('span', {class: 'mark'}, mark)), el('p', {class: 'muted'}, one.words));
  if (answer.formula) {
    node.append(...formulaNodes(answer.formula, one.caps), el('p', {class: 'muted'}, one.source));
    return node;
  }
  if (answer.error) {
    node.append(el('p', {class: 'error'}, answer.error));
    return node;
  }
  const plan = JSON.parse(answer.plan);
  node.append(tilesOf(plan), el('p', {class: 'muted'}, `${bindsWords(plan.binds)} ${one.assumptions(plan.binds)} ${one.source}`));
  if (kind === 'first') return node;
  const frame = el('iframe', {title: 'The plan, explained', srcdoc: answer.page});
  frame.addEventListener('load', () => {
    // It may be gone when a later answer has taken its place.
    const fit = () => { if (frame.contentDocument) frame.style.height = `${frame.contentDocument.body.offsetHeight + 4}px`; };
    frame.contentWindow.setTheme(document.documentElement.dataset.theme);
    fit();
    // What unfolds in it, such as a task that was chosen, and its width change how high it is.
    new frame.contentWindow.ResizeObserver(fit).observe(frame.contentDocument.body);
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
  $('beside').hidden = !beside && !(shown && shown.kind === 'searched' && !shown.answer.error);
}

async function plan() {
  if (!$('controls').reportValidity()) return;
  await reading;
  planner.stop();
  quick.stop();
  const run = plan.run = (plan.run ?? 0) + 1;
  const asked = request(), began = performance.now();
  // What stands last is meant: a line under "more settings" may set a cap, too.
  const setTo = tier => settings().filter(s => s.startsWith(`memory.${tier}=`)).map(s => s.split('=')[1]);
  const cards = Number(settings().filter(s => s.startsWith('run.devices=')).pop()?.split('=')[1] ?? 1) || 1;
  const words = [brought.modelName || $('model').value, ...(cards > 1 ? [`${cards} cards`] : []), `${setTo('device').pop().replace(/GiB$/, ' GiB')} of device memory`,
                 `${setTo('host').pop().replace(/GiB$/, ' GiB')} of host memory`,
                 `${Number($('step').value).toLocaleString('en-US')} tokens a step`].join(', ');
  const bytes = words => Number((/^([\d.]+) *GiB$/.exec(words) ?? [])[1]) * kGiB;  // NaN: in other words
  const caps = {device: bytes(setTo('device').pop()), host: bytes(setTo('host').pop()), devices: cards}, of = curveKey();
  const atSlider = setTo('device').length === 1 ? Number($('device').value) : null;
  const source = sourceWords(), assumptions = assumptionWords();
  const told = (answer, kind) => ({answer, kind, words, source, caps, assumptions});
  keepInAddress();
  $('command').textContent = commandLine();
  $('same').hidden = false;
  $('stop').hidden = false;
  $('doing').textContent = 'searching';
  document.body.dataset.busy = 'yes';
  const seconds = () => ((performance.now() - began) / 1000).toFixed(0);
  let doing = 'searching';
  const clock = setInterval(() => { $('doing').textContent = `${doing}, ${seconds()} s`; }, 500);
  // One after the other: counting takes a fraction of a second whatever is asked, the rule a few seconds at most settings.
  const byRule = JSON.stringify({...JSON.parse(asked), quick: true});
  for (const [question, what, kind] of [['formula', asked, 'formula'], ['plan', byRule, 'first']]) {
    quick.ask(question, what).then(answer => {
      if (run !== plan.run || !answer || answer.error || document.body.dataset.busy !== 'yes') return;
      shown = told(answer, kind);
      document.body.dataset[kind + 'Ms'] = String(Math.round(performance.now() - began));
      showAnswers();
    });
  }
  const answer = await planner.ask('plan', asked, (what, done) => { doing = done > 0 ? `${what}: ${done} looked at` : what; });
  clearInterval(clock);
  if (run !== plan.run) return;
  document.body.dataset.busy = 'no';
  $('stop').hidden = true;
  if (!answer) { $('doing').textContent = `stopped after ${seconds()} s`; return; }
  $('doing').textContent = `${answer.error ? 'refused' : 'planned'} in ${((performance.now() - began) / 1000).toFixed(1)} s`;
  document.body.dataset.planMs = String(Math.round(performance.now() - began));
  shown = told(answer, 'searched');
  showAnswers();
  if (atSlider !== null) keepPoint(of, atSlider, answer);
}
