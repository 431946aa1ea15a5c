// SPDX-License-Identifier: Apache-2.0
// The timeline as it is shown, as a picture of its own.

// What a canvas draws, written as SVG: the part of a 2D context that the timeline uses.
class SvgContext {
  constructor() {
    Object.assign(this, {fillStyle: '#000', strokeStyle: '#000', font: '', textAlign: 'left', lineWidth: 1, globalAlpha: 1});
    this.parts = [];
    this.last = new Map();  // by colour the last rectangle, which its like beside it makes wider
    this.dash = [];
    this.ruler = document.createElement('canvas').getContext('2d');
  }
  static number(v) { return String(Math.round(v * 10) / 10); }
  static text(words) { return words.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;'); }
  alpha(name) { return this.globalAlpha < 1 ? ` ${name}="${this.globalAlpha}"` : ''; }
  measureText(text) {
    this.ruler.font = this.font;
    return this.ruler.measureText(text);
  }
  fillRect(x, y, w, h) {
    if (w <= 0 || h <= 0) return;
    const last = this.last.get(this.fillStyle), n = SvgContext.number;
    if (last && n(last.y) === n(y) && n(last.h) === n(h) && x >= last.x && x <= last.x + last.w + 0.01) {
      last.w = Math.max(last.w, x + w - last.x);
      return;
    }
    const rect = {x, y, w, h, fill: this.fillStyle, alpha: this.alpha('fill-opacity')};
    if (this.globalAlpha === 1) this.last.set(this.fillStyle, rect);
    this.parts.push(rect);
  }
  fillText(text, x, y) {
    const anchor = {left: 'start', right: 'end', center: 'middle'}[this.textAlign], n = SvgContext.number;
    this.parts.push(`<text x="${n(x)}" y="${n(y + 4)}" font-size="${/(\d+)px/.exec(this.font)[1]}" text-anchor="${anchor}" ` +
                    `${this.font.startsWith('bold') ? 'font-weight="600" ' : ''}fill="${this.fillStyle}">${SvgContext.text(text)}</text>`);
  }
  setLineDash(dash) { this.dash = dash; }
  beginPath() { this.path = ''; }
  moveTo(x, y) { this.path += `M${SvgContext.number(x)} ${SvgContext.number(y)}`; }
  lineTo(x, y) { this.path += `L${SvgContext.number(x)} ${SvgContext.number(y)}`; }
  stroke() {
    const dash = this.dash.length ? ` stroke-dasharray="${this.dash.join(' ')}"` : '';
    this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}"${dash}${this.alpha('stroke-opacity')}/>`);
  }
  str() {
    const n = SvgContext.number;
    return this.parts.map(p => (typeof p === 'string' ? p :
      `<rect x="${n(p.x)}" y="${n(p.y)}" width="${n(p.w)}" height="${n(p.h)}" fill="${p.fill}"${p.alpha}/>`)).join('\n');
  }
}

// The namespace of SVG as the browser knows it.
const svgNamespace = new DOMParser().parseFromString('<svg></svg>', 'text/html').querySelector('svg').namespaceURI;

// The view's title, the timeline, and its legends, in the theme in use.
function viewAsSvg() {
  const kTop = 62, width = plotWidth + kLeft + kRight, ctx = new SvgContext();
  ctx.font = '12px system-ui, "DejaVu Sans", sans-serif';
  paintTimeline(ctx);
  const body = ctx.str(), notes = new SvgContext();
  notes.font = 'bold 15px system-ui, "DejaVu Sans", sans-serif';
  notes.fillStyle = colour('--ink');
  notes.fillText($('title').textContent, 0, 12);
  notes.font = '12px system-ui, "DejaVu Sans", sans-serif';
  notes.fillStyle = colour('--muted');
  notes.fillText($('subtitle').textContent, 0, 32);
  notes.fillText($('range').textContent, 0, 48);
  let x = 0, y = kTop + kTimelineHeight + 14;
  for (const legend of ['lane-legend', 'kind-legend']) {
    for (const entry of $(legend).children) {
      const room = notes.measureText(entry.textContent).width + 34;
      if (x > 0 && x + room > width) { x = 0; y += 18; }
      notes.fillStyle = colour(/--[\w-]+/.exec(entry.querySelector('.swatch').style.background)[0]);
      notes.fillRect(x, y - 5, 10, 10);
      notes.fillStyle = colour('--muted');
      notes.fillText(entry.textContent, x + 15, y);
      x += room;
    }
    x = 0;
    y += 18;
  }
  return `<svg xmlns="${svgNamespace}" width="${width + 24}" height="${y + 12}" viewBox="-12 -12 ${width + 24} ${y + 12}" ` +
    `font-family="system-ui, 'DejaVu Sans', sans-serif">\n<rect x="-12" y="-12" width="100%" height="100%" fill="${colour('--card')}"/>\n` +
    `${notes.str()}\n<g transform="translate(0 ${kTop})">\n${body}\n</g>\n</svg>\n`;
}
function saveView() {
  const url = URL.createObjectURL(new Blob([viewAsSvg()], {type: 'image/svg+xml'}));
  const link = el('a', {href: url, download: 'plan.svg'});
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
