// SPDX-License-Identifier: Apache-2.0
// What is asked for: the form, the address that keeps it, and the request and command line that it makes.

const kGiB = 2 ** 30;
// Rates that may be set otherwise than the card has them, by the control: its unit, the ends of its slider, the key of a machine
// file that it shows, and those that go with that one in proportion.
const kRates = {flops: {unit: 12, words: 'TFLOP/s', least: 0.5, most: 5000, key: /products$/, keys: /_flops/},
                link: {unit: 9, words: 'GB/s', least: 1, most: 1000, key: /load_/, keys: /load_|store_/},
                peer: {unit: 9, words: 'GB/s', least: 1, most: 2000, key: /peer_/, keys: /peer_/, none: 'by way of the host'}};
// The program's keys of a step, but for those with a control of their own. Filled from its choices.
const listed = {};  // by the control: its key, as the program describes it
const kOwnControls = ['train.seq_len', 'train.tokens_per_step'];
const fields = ['model', 'seq', 'step', 'machine', 'devices', 'device', 'host', ...Object.keys(kRates), 'more'];
const brought = {model: '', machine: '', modelName: '', machineName: ''};  // texts of files, which go before a choice
const kFirst = {model: 'llama3-8b', seq: '8192', step: '131072', machine: 'h200', devices: '1', device: '16', host: '110', flops: '', link: '', peer: '',
                more: ''};
let choices = null;
let wantedGib = 0;  // of device memory, which a small card may have less of
let readMachine = null;  // what the machine file that was brought says; null: it cannot be read, or there is none
let reading = Promise.resolve();  // of that file

const unquoted = word => word.replace(/"/g, '');
const kListed = {optimizer: 'Optimizer', compute: 'Weights and activations', grad: 'Gradients', state: 'Optimizer state', master: 'Master weights'};
const allowedOf = name => choices.keys.find(key => key.name === name).allowed.split(/, | or /).map(word => word.trim()).filter(word => /^[\w-]+$/.test(word));
const machineOf = key => choices.machines.find(machine => machine.key === key);
const machineNow = () => brought.machine ? readMachine : machineOf($('machine').value);

function fillChoices() {
  const option = (value, words) => el('option', {value}, words);
  $('version').textContent = `sluice ${choices.sluice}`;
  $('model').append(el('optgroup', {label: 'Presets'}, ...choices.models.map(name => option(name, name))),
                    el('optgroup', {label: 'Families, by a config.json to edit'}, ...Object.keys(choices.families).map(name => option(`family:${name}`, name))));
  $('machine').append(...choices.machines.map(m => option(m.key, m.card + (m.compared ? '' : ', estimated'))));
  for (const what of ['model', 'machine']) $(what).append(el('option', {value: 'brought', hidden: ''}));
  for (const key of choices.keys.filter(key => key.of_step && !kOwnControls.includes(key.name))) {
    const words = allowedOf(key.name), shown = key.name === 'train.optimizer' || words.includes('f32');
    const id = shown ? key.name.replace('train.', '') : key.name, described = {id, 'aria-describedby': `${id}-words`};
    listed[id] = key;
    kFirst[id] = words.length > 1 ? unquoted(key.value) : '';
    fields.push(id);
    $(shown ? 'listed' : 'others').append(
      el('label', {for: id}, kListed[id] ?? id),
      words.length > 1 ? el('select', described, ...words.map(word => option(word, word))) : el('input', {...described, placeholder: unquoted(key.value)}),
      el('small', {id: `${id}-words`}, `${key.meaning[0].toUpperCase()}${key.meaning.slice(1)}.${words.includes('auto') && shown ? ' auto: what suits the card and its memory.' : ''}`));
  }
}
// The caps and rates of the machine that is chosen.
function showMachine() {
  const machine = machineNow(), most = machine ? Math.floor(2 * machine.usable_bytes / kGiB) / 2 : 192;
  $('device').max = String(most);
  $('device').value = String(Math.min(wantedGib, most));
  $('device-words').textContent = machine ? `The slider ends at ${most} GiB: the card has ${(machine.memory_bytes / kGiB).toFixed(1)}, of which its driver and the ` +
    'screen need about 1.' : '';
  $('cap').max = $('device').max;
  $('cap').value = $('device').value;
  for (const id of ['devices', 'device', 'host']) $(id + '-shown').textContent = $(id).value;
  for (const [id, {least, most, words, none}] of Object.entries(kRates)) {
    const own = ownRate(id), rate = rateNow(id), slider = $(id + '-slider');
    $(id).placeholder = own > 0 ? String(own) : '0';
    slider.value = String(rate > 0 ? Math.max(0, Math.round(100 * Math.log(rate / least) / Math.log(most / least))) : slider.min);
    slider.setAttribute('aria-valuetext', (rate > 0 ? `${rate} ${words}` : none ?? '') + ($(id).value === '' ? ', as the card has it' : ''));
  }
}
const ratesOf = keys => Object.entries(machineNow()?.rates ?? {}).filter(([key]) => keys.test(key));
// In the control's unit; 0: the machine has none.
const ownRate = id => Number(((ratesOf(kRates[id].key)[0]?.[1] ?? 0) / 10 ** kRates[id].unit).toPrecision(4));
const rateNow = id => $(id).value === '' ? ownRate(id) : Number($(id).value);
const setRates = () => Object.keys(kRates).filter(id => $(id).value !== '');
function rateSettings() {
  const list = [];
  for (const id of setRates()) {
    const {unit, key, keys} = kRates[id], rate = Number($(id).value), own = ratesOf(key)[0]?.[1];
    if (id === 'peer') list.push(rate === 0 ? 'run.peer=off' : `machine.links.peer_bytes_per_s=${rate}e${unit}`);
    else if (own > 0) for (const [name, value] of ratesOf(keys)) list.push(`machine.${name}=${Number((rate * value / own).toPrecision(6))}e${unit}`);
  }
  return list;
}
function listenToRates() {
  $('rates').addEventListener('invalid', () => { $('rates').open = true; }, true);  // what is hidden cannot be pointed at
  for (const [id, {least, most, none}] of Object.entries(kRates)) {
    $(id + '-slider').addEventListener('input', e => {
      const place = Number(e.target.value);
      $(id).value = none && place < 0 ? '0' : String(Number((least * (most / least) ** (Math.max(place, 0) / 100)).toPrecision(3)));
      $(id).dispatchEvent(new Event('input'));
    });
  }
  $('own-rates').addEventListener('click', () => {
    for (const id of Object.keys(kRates)) $(id).value = '';
    $('flops').dispatchEvent(new Event('input'));
  });
}
function settings() {
  const list = [];
  if (!brought.model) list.push(`model.preset=${$('model').value}`);
  list.push(`train.seq_len=${$('seq').value}`, `train.tokens_per_step=${$('step').value}`,
            `memory.device=${$('device').value}GiB`, `memory.host=${$('host').value}GiB`);
  for (const [id, key] of [...Object.entries(listed), ['devices', choices.keys.find(one => one.name === 'run.devices')]]) {
    if (!['', unquoted(key.value)].includes($(id).value)) list.push(`${key.name}=${$(id).value}`);
  }
  list.push(...rateSettings());
  for (const line of $('more').value.split('\n')) {
    const words = line.trim();
    if (words && !words.startsWith('#')) list.push(words.replace(/\s*=\s*/, '=').replace(/^([^=]+)="(.*)"$/, '$1=$2'));
  }
  return list;
}
// `machine`: of another card than the one that is chosen.
function request(machine) {
  const asked = {settings: settings(), threads: 1};
  if (machine) asked.machine = machine;
  else if (brought.machine) Object.assign(asked, {machine_file: brought.machine, machine_file_name: brought.machineName});
  else asked.machine = $('machine').value;
  if (brought.model) asked.model = brought.model;
  return JSON.stringify(asked);
}
const quoted = word => (/^[\w./=:,+-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`);
function commandLine() {
  const words = ['sluice plan', '--machine', brought.machine ? quoted(brought.machineName) : $('machine').value];
  if (brought.model) words.push('--model', quoted(brought.modelName));
  for (const setting of settings()) words.push('--set', quoted(setting));
  return words.join(' ').replace(/ --set/g, ' \\\n    --set');
}

// The address has all of it, so that a link is a question.
function keepInAddress() {
  const kept = new URLSearchParams();
  const asFirst = id => listed[id]?.name === id && $(id).value === kFirst[id];
  for (const id of fields) if ($(id).value && $(id).value !== 'brought' && !asFirst(id)) kept.set(id, $(id).value);
  for (const [name, text] of Object.entries(brought)) if (text) kept.set(`brought.${name}`, text);
  for (const [key, price] of Object.entries(prices)) if (price !== kPrices[key]) kept.set(`price.${key}`, String(price));
  history.replaceState(null, '', '#' + kept);
}
// `valueOf` a field; what is no choice here is as the page begins.
async function fill(valueOf) {
  $('device').max = '192';
  for (const id of fields) {
    $(id).value = valueOf(id);
    if ($(id).value === '' && kFirst[id]) $(id).value = kFirst[id];
  }
  wantedGib = Number($('device').value);
  await showBrought();
}
function fillFromAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(brought)) brought[name] = kept.get(`brought.${name}`) ?? '';
  for (const key of Object.keys(prices)) prices[key] = priceOf(kept.get(`price.${key}`), key);
  return fill(id => {
    const word = kept.get(id) ?? kFirst[id];
    return id === 'master' && word === 'on' ? 'f32' : word;  // what it was called before
  });
}
// Files that were brought stand in the lists; a machine's is read.
async function showBrought() {
  for (const what of ['model', 'machine']) {
    $(what).querySelector('[value=brought]').textContent = brought[what + 'Name'];
    if (brought[what]) $(what).value = 'brought';
    else if ($(what).value === 'brought') $(what).value = kFirst[what];
  }
  $('config-part').hidden = !brought.model;
  if ($('config').value !== brought.model) $('config').value = brought.model;
  $('rates').open ||= setRates().length > 0;
  readMachine = null;
  showMachine();
  if (!brought.machine) return;
  reading = quick.ask('machine', JSON.stringify({machine_file: brought.machine, machine_file_name: brought.machineName}));
  const said = await reading;
  readMachine = said && !said.error ? said : null;
  showMachine();
}
function bring(what, text, name, onChange) {
  brought[what] = text;
  brought[what + 'Name'] = name;
  return showBrought().then(onChange);
}
// How much device memory is wanted stays what it was, whatever card is looked at.
function listenToMemory() {
  $('device').addEventListener('input', () => { wantedGib = Number($('device').value); });
  $('cap').addEventListener('input', () => {
    $('device').value = $('cap').value;
    $('device').dispatchEvent(new Event('input'));
  });
}
// A choice of a list takes the place of a file; a family is a config.json to begin with.
function listenToChoices(onChange) {
  for (const what of ['model', 'machine']) {
    $(what).addEventListener('input', () => {
      const family = /^family:(.*)/.exec($(what).value)?.[1];
      bring(what, family ? choices.families[family] : '', family ? `${family}.json` : '', onChange);
    });
  }
  $('config').addEventListener('input', () => {
    brought.model = $('config').value || ' ';
    onChange();
  });
  $('save-config').addEventListener('click', () => download(brought.modelName, brought.model, 'application/json'));
}
function listenToDrops(what, onChange) {
  const place = $('drop-' + what), file = $(what + '-file');
  const take = async one => { if (one) bring(what, await one.text() || ' ', one.name, onChange); };
  place.addEventListener('click', () => file.click());
  place.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); file.click(); } });
  file.addEventListener('change', () => { take(file.files[0]); file.value = ''; });
  for (const name of ['dragover', 'dragleave', 'drop']) {
    place.addEventListener(name, e => {
      e.preventDefault();
      place.classList.toggle('over', name === 'dragover');
      if (name === 'drop') take(e.dataTransfer.files[0]);
    });
  }
}
