// SPDX-License-Identifier: Apache-2.0
// The map of what is saved for backward, layer by chunk.

const map = plan.map;
const grid = {};  // where the map's cells are, for the pointer
const kWeightWidth = 22;
function rolesOf(row, column) {
  const wanted = $('role').value, out = [];
  map.roles.forEach((role, r) => {
    const state = map.cells[row][column * map.roles.length + r];
    if (state !== '-' && (wanted === '' || wanted === role)) out.push({role, state, bytes: map.role_bytes[r]});
  });
  return out;
}
function roomBefore(column) {  // rounds stand a little apart
  return column > 0 && map.columns[column][0] !== map.columns[column - 1][0] ? 1 : 0;
}
function layoutMap() {
  const rows = map.layers.length, columns = map.columns.length;
  const rounds = new Set(map.columns.map(c => c[0])).size;
  grid.left = 46;
  grid.cells = grid.left + 3 * kWeightWidth + 14;
  const room = $('map').parentElement.clientWidth - grid.cells - 6 * (rounds - 1) - 2;
  grid.w = Math.max(7, Math.min(96, room / Math.max(1, columns)));
  grid.h = Math.max(9, Math.min(22, 460 / rows));
  grid.top = 34;
  grid.x = [];
  let x = grid.cells;
  for (let c = 0; c < columns; ++c) {
    x += 6 * roomBefore(c);
    grid.x.push(x);
    x += grid.w;
  }
  grid.width = x + 2;
  grid.height = grid.top + rows * grid.h + 4;
}
// Parts of a cell, side by side in proportion to their bytes.
function paintCell(ctx, x, y, w, h, parts) {
  const total = parts.reduce((sum, p) => sum + p.bytes, 0);
  if (total === 0) return;
  for (const {bytes, name} of parts) {
    const part = w * bytes / total;
    ctx.fillStyle = colour(name);
    ctx.fillRect(x, y, part, h);
    x += part;
  }
}
function drawMap() {
  if (plan.saved.length === 0) return;
  layoutMap();
  const {ctx} = prepared($('map'), grid.height, grid.width);
  const rows = map.layers.length;
  ctx.fillStyle = colour('--muted');
  ctx.font = '11px system-ui, "DejaVu Sans", sans-serif';
  ctx.textAlign = 'center';
  ['w', 'g', 'opt'].forEach((name, k) => ctx.fillText(name, grid.left + (k + 0.5) * kWeightWidth, grid.top - 9));
  let labelled = 0;  // where the next label of a round may begin
  map.columns.forEach(([round, chunk], c) => {
    const every = Math.ceil(26 / grid.w);
    if ((c === 0 || roomBefore(c)) && grid.x[c] >= labelled) {
      const wide = `round ${round}`, next = map.columns.findIndex((column, i) => i > c && column[0] !== round);
      const room = (next < 0 ? grid.width : grid.x[next]) - grid.x[c];
      const text = ctx.measureText(wide).width + 4 < room ? wide : `r${round}`;
      ctx.textAlign = 'left';
      ctx.fillText(text, grid.x[c], grid.top - 24);
      ctx.textAlign = 'center';
      labelled = grid.x[c] + ctx.measureText(text).width + 4;
    }
    if (chunk % every === 0) ctx.fillText(chunk, grid.x[c] + grid.w / 2, grid.top - 9);
  });
  ctx.textAlign = 'right';
  for (let row = 0; row < rows; ++row) {
    const y = grid.top + row * grid.h, gap = grid.h > 12 ? 2 : 1;
    const every = grid.h >= 13 ? 1 : 2;
    ctx.fillStyle = colour('--muted');
    if (row === rows - 1) ctx.fillText('ends', grid.left - 6, y + grid.h / 2);
    else if (row % every === 0) ctx.fillText(map.layers[row], grid.left - 6, y + grid.h / 2);
    for (let k = 0; k < 3; ++k) {
      const w = map.weights[row], device = w.device_bytes[k];
      paintCell(ctx, grid.left + k * kWeightWidth + 1, y, kWeightWidth - 2, grid.h - gap,
                [{bytes: device, name: '--device'}, {bytes: w.bytes[k] - device, name: '--host'}]);
    }
    for (let c = 0; c < map.columns.length; ++c) {
      const here = rolesOf(row, c), by = state => here.reduce((s, r) => s + (r.state === state ? r.bytes : 0), 0);
      paintCell(ctx, grid.x[c], y, grid.w - (grid.w > 12 ? 2 : 1), grid.h - gap,
                Object.entries(savingColours).map(([state, name]) => ({bytes: by(state), name})));
    }
  }
}
function hoverMap(e) {
  const box = $('map').getBoundingClientRect(), x = e.clientX - box.left, y = e.clientY - box.top;
  const row = Math.floor((y - grid.top) / grid.h);
  if (row < 0 || row >= map.layers.length) return hideTip();
  const ends = row === map.layers.length - 1, where = ends ? 'embedding and head' : `layer ${map.layers[row]}`;
  const k = Math.floor((x - grid.left) / kWeightWidth);
  if (k >= 0 && k < 3) {
    const w = map.weights[row];
    return showTip(e, [el('b', {}, `${map.weight_kinds[k]}, ${where}, between steps`),
                       `${bytesText(w.device_bytes[k])} on the device`, `${bytesText(w.bytes[k] - w.device_bytes[k])} elsewhere`]);
  }
  const c = grid.x.findIndex(left => x >= left && x < left + grid.w);
  if (c < 0) return hideTip();
  const here = rolesOf(row, c);
  showTip(e, [el('b', {}, `${where}, round ${map.columns[c][0]}, chunk ${map.columns[c][1]}`),
              ...(here.length ? here.map(r => el('div', {}, swatch(savingColours[r.state]), `${r.role}, ${bytesText(r.bytes)}: ${savings[r.state]}`))
                              : ['nothing is saved here'])]);
}
