// SPDX-License-Identifier: Apache-2.0
// The page comes to life.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const frame of document.querySelectorAll('iframe')) frame.contentWindow.setTheme?.(theme);
}
async function start() {
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  setTheme(dark.matches ? 'dark' : 'light');
  dark.addEventListener('change', e => setTheme(e.matches ? 'dark' : 'light'));
  $('theme').addEventListener('click', () => setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark'));
  choices = await quick.ask('choices');
  fillChoices();
  await fillFromAddress();
  listenToChoices(showCurve);
  listenToRates();
  listenToMemory();
  for (const id of fields) $(id).addEventListener('input', () => { showMachine(); showCurve(); });
  window.addEventListener('resize', showCurve);
  $('search-curve').addEventListener('click', searchCurve);
  $('search-cards').addEventListener('click', searchCards);
  listenToDrops('model', showCurve);
  listenToDrops('machine', showCurve);
  $('controls').addEventListener('submit', e => { e.preventDefault(); plan(); });
  $('stop').addEventListener('click', () => planner.stop());
  $('beside').addEventListener('click', () => { beside = beside ? null : shown; $('beside').textContent = beside ? 'One alone' : 'Keep beside'; showAnswers(); });
  $('copy').addEventListener('click', () => navigator.clipboard.writeText($('command').textContent.replace(/ \\\n\s+/g, ' ')));
  $('start-tour').addEventListener('click', () => showTour(0));
  showCurve();
  document.body.dataset.ready = 'yes';
  if (location.hash.length > 1) plan();
}
start();
