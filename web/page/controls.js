// SPDX-License-Identifier: Apache-2.0
// What is asked for: the form, the address that keeps it, and the request and command line that it makes.

const kGiB = 2 ** 30;
const fields = ['model', 'seq', 'step', 'machine', 'devices', 'device', 'host', 'optimizer', 'state', 'master', 'more'];
const brought = {model: '', machine: '', modelName: '', machineName: ''};  // texts of files, which go before a choice
const kFirst = {model: 'llama3-8b', seq: '8192', step: '131072', machine: 'h200', devices: '1', device: '16', host: '110',
                optimizer: 'adamw', state: 'auto', master: 'auto', more: ''};
let choices = null;

const allowedOf = name => choices.keys.find(key => key.name === name).allowed.split(/, | or /).map(word => word.trim()).filter(word => /^[\w-]+$/.test(word));
const machineOf = key => choices.machines.find(machine => machine.key === key);

function fillChoices() {
  $('version').textContent = `sluice ${choices.sluice}`;
  $('model').append(...choices.models.map(name => el('option', {value: name}, name)));
  $('machine').append(...choices.machines.map(m => el('option', {value: m.key}, m.card + (m.compared ? '' : ', estimated'))));
  for (const [id, key] of [['optimizer', 'train.optimizer'], ['state', 'train.state'], ['master', 'train.master']]) {
    $(id).append(...allowedOf(key).map(word => el('option', {value: word}, word)));
  }
}
function showCaps() {
  const machine = brought.machine ? null : machineOf($('machine').value);
  const most = machine ? Math.floor(2 * machine.usable_bytes / kGiB) / 2 : 192;
  $('device').max = String(most);
  if (Number($('device').value) > most) $('device').value = String(most);
  for (const id of ['device', 'host']) $(id + '-shown').textContent = $(id).value;
}
function settings() {
  const list = [];
  if (!brought.model) list.push(`model.preset=${$('model').value}`);
  list.push(`train.seq_len=${$('seq').value}`, `train.tokens_per_step=${$('step').value}`,
            `memory.device=${$('device').value}GiB`, `memory.host=${$('host').value}GiB`);
  for (const [id, key] of [['optimizer', 'train.optimizer'], ['state', 'train.state'], ['master', 'train.master'], ['devices', 'run.devices']]) {
    const known = choices.keys.find(one => one.name === key).value.replace(/"/g, '');
    if ($(id).value !== known) list.push(`${key}=${$(id).value}`);
  }
  for (const line of $('more').value.split('\n')) {
    const words = line.trim();
    if (words && !words.startsWith('#')) list.push(words.replace(/\s*=\s*/, '=').replace(/^([^=]+)="(.*)"$/, '$1=$2'));
  }
  return list;
}
function request() {
  const asked = {settings: settings(), threads: 1};
  if (brought.machine) Object.assign(asked, {machine_file: brought.machine, machine_file_name: brought.machineName});
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
  for (const id of fields) if ($(id).value) kept.set(id, $(id).value);
  for (const [name, text] of Object.entries(brought)) if (text) kept.set(`brought.${name}`, text);
  for (const [key, price] of Object.entries(prices)) if (price !== kPrices[key]) kept.set(`price.${key}`, String(price));
  history.replaceState(null, '', '#' + kept);
}
function fillFromAddress() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(brought)) brought[name] = kept.get(`brought.${name}`) ?? '';
  for (const key of Object.keys(prices)) prices[key] = priceOf(kept.get(`price.${key}`), key);
  $('device').max = '192';
  for (const id of fields) {
    const word = kept.get(id) ?? kFirst[id];
    $(id).value = id === 'master' && word === 'on' ? 'f32' : word;  // what it was called before
    if ($(id).value === '' && kFirst[id]) $(id).value = kFirst[id];  // a word that is no choice here
  }
  nameBrought();
  showCaps();
}
function nameBrought() {
  $('drop-model').textContent = brought.model ? `${brought.modelName} is planned for; press to go back to the list` : 'or drop a config.json here, or press to choose one';
  $('drop-machine').textContent = brought.machine ? `${brought.machineName} is planned for; press to go back to the list` :
    'or drop what sluice doctor --machine-file wrote';
  $('model').disabled = brought.model !== '';
  $('machine').disabled = brought.machine !== '';
}
function listenToDrops(what, onChange) {
  const place = $('drop-' + what), file = $(what + '-file');
  const take = async one => {
    if (!one) return;
    brought[what] = await one.text();
    brought[what + 'Name'] = one.name;
    nameBrought();
    onChange();
  };
  const press = () => {
    if (!brought[what]) return file.click();
    brought[what] = brought[what + 'Name'] = '';
    nameBrought();
    onChange();
  };
  place.addEventListener('click', press);
  place.addEventListener('keydown', e => { if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); press(); } });
  file.addEventListener('change', () => take(file.files[0]));
  for (const name of ['dragover', 'dragleave', 'drop']) {
    place.addEventListener(name, e => {
      e.preventDefault();
      place.classList.toggle('over', name === 'dragover');
      if (name === 'drop') take(e.dataTransfer.files[0]);
    });
  }
}
