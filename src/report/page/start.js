// SPDX-License-Identifier: Apache-2.0
// The page comes to life.

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  for (const name of Object.keys(colourOf)) delete colourOf[name];
  redraw();
  drawMap();
}
function start() {
  fillTitle();
  fillTiles();
  fillTime();
  fillLinks();
  fillMemory();
  fillTables();
  fillLegends();
  $('role').append(el('option', {value: ''}, 'all activations'), ...map.roles.map(r => el('option', {value: r}, r)));
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  dark.addEventListener('change', e => setTheme(e.matches ? 'dark' : 'light'));
  document.documentElement.dataset.theme = dark.matches ? 'dark' : 'light';
  listen();
  listenToPlay();
  zoomFromFragment();
  drawTimeline();
  drawOverview();
  drawMap();
  $('theme').hidden = window.parent !== window;  // the page around it has one
  document.body.dataset.ready = 'yes';
}
start();
