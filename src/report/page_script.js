/* Charts that answer: values at the pointer, zoom by dragging, curves that the legend hides. A page is whole without it.
 * Keys on a chart that has the focus: arrows move the cursor, + and - zoom, Escape shows everything again. */
(() => {
  'use strict';
  let dragging = false; /* then the page stays as it is */
  const make = (parent, name, attributes) => {
    const element = document.createElementNS(parent.namespaceURI, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    return parent.appendChild(element);
  };
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const isNumber = value => value !== null && Number.isFinite(value);
  const number = value => {
    const size = Math.abs(value);
    if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(3).replace(/\.?0*e\+?/, 'e');
    if (Number.isInteger(value)) return String(value);
    return String(size >= 1e6 ? Math.round(value) : Number(value.toPrecision(6)));
  };

  const tickText = value => Math.abs(value) >= 1e6 ? value.toExponential(2).replace(/\.?0*e\+?/, 'e') : number(value);

  /* ---- axes ---- */

  /* "from to low high logarithmic": pixels, and what lies there. */
  const readAxis = words => {
    const [from, to, low, high, log] = words.split(' ').map(Number);
    return {from, to, low, high, log: log === 1};
  };
  const scale = (axis, value) => axis.log ? Math.log(value) : value;
  const place = (axis, value) =>
    axis.from + (scale(axis, value) - scale(axis, axis.low)) / (scale(axis, axis.high) - scale(axis, axis.low)) *
    (axis.to - axis.from);
  const valueAt = (axis, pixel) => {
    const low = scale(axis, axis.low);
    const value = low + (pixel - axis.from) / (axis.to - axis.from) * (scale(axis, axis.high) - low);
    return axis.log ? Math.exp(value) : value;
  };
  const ticks = (axis, wanted) => {
    const list = [];
    if (axis.log && axis.high >= 5 * axis.low) {
      const first = Math.floor(Math.log10(axis.low)), last = Math.ceil(Math.log10(axis.high));
      const parts = axis.high < 1000 * axis.low ? [1, 2, 5] : [1], stride = Math.max(1, Math.ceil((last - first) / wanted));
      for (let power = first; power <= last; power += stride)
        for (const part of parts) list.push(Number((part * 10 ** power).toPrecision(6)));
      return list.filter(value => value >= axis.low && value <= axis.high);
    }
    const raw = (axis.high - axis.low) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
    for (let k = Math.ceil(axis.low / step - 1e-9); k * step <= axis.high * (1 + 1e-12) && list.length < 30; k++)
      list.push(Number((k * step).toPrecision(12)));
    return list;
  };

  /* ---- a field: axes and curves of one of the chart's drawings ---- */

  class Field {
    constructor(chart, group) {
      this.chart = chart;
      this.svg = group.closest('svg');
      this.axes = group.querySelector('.axes');
      this.curves = group.querySelector('.curves');
      this.asDrawn = {x: readAxis(group.dataset.x), y: readAxis(group.dataset.y), axes: this.axes.innerHTML,
                      curves: this.curves.innerHTML};
      this.x = this.asDrawn.x;
      this.y = this.asDrawn.y;
      this.cursor = make(group, 'line', {class: 'cursor', y1: this.y.from, y2: this.y.to, visibility: 'hidden'});
      this.dragged = make(group, 'rect', {class: 'drag', y: this.y.to, height: this.y.from - this.y.to, width: 0});
      make(group, 'rect', {class: 'catch', x: this.x.from, width: this.x.to - this.x.from, y: this.y.to,
                           height: this.y.from - this.y.to});
      this.svg.tabIndex = 0;
      this.listen(group);
    }

    pixel(event) {
      const box = this.svg.getBoundingClientRect(), shown = this.svg.viewBox.baseVal;
      return [(event.clientX - box.left) * shown.width / box.width, (event.clientY - box.top) * shown.height / box.height];
    }

    listen(group) {
      let start = null;
      group.addEventListener('pointerdown', event => {
        if (event.button !== 0) return;
        start = clamp(this.pixel(event)[0], this.x.from, this.x.to);
        dragging = true;
        group.setPointerCapture(event.pointerId);
      });
      group.addEventListener('pointermove', event => {
        const [x, y] = this.pixel(event);
        this.chart.show(this, x, y);
        if (start === null) return;
        const end = clamp(x, this.x.from, this.x.to);
        this.dragged.setAttribute('x', Math.min(start, end));
        this.dragged.setAttribute('width', Math.abs(end - start));
      });
      const stop = event => {
        const end = clamp(this.pixel(event)[0], this.x.from, this.x.to), begin = start;
        start = null;
        dragging = false;
        this.dragged.setAttribute('width', 0);
        if (begin !== null && event.type === 'pointerup' && Math.abs(end - begin) > 6)
          this.chart.zoom(valueAt(this.x, Math.min(begin, end)), valueAt(this.x, Math.max(begin, end)));
      };
      group.addEventListener('pointerup', stop);
      group.addEventListener('pointercancel', stop);
      group.addEventListener('pointerleave', () => this.chart.hide());
      group.addEventListener('dblclick', () => this.chart.zoom());
      this.svg.addEventListener('keydown', event => this.key(event));
      this.svg.addEventListener('blur', () => this.chart.hide());
    }

    key(event) {
      const chart = this.chart, middle = (this.x.from + this.x.to) / 2, at = chart.at ?? middle;
      const width = this.x.to - this.x.from;
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === 'ArrowLeft' || event.key === 'ArrowRight')
        chart.show(this, clamp(at + (event.key === 'ArrowLeft' ? -1 : 1) * width / 100, this.x.from, this.x.to));
      else if (event.key === '+' || event.key === '=')
        chart.zoom(valueAt(this.x, clamp(at - width / 4, this.x.from, this.x.to)),
                   valueAt(this.x, clamp(at + width / 4, this.x.from, this.x.to)));
      else if (event.key === '-')
        chart.zoom(valueAt(this.x, this.x.from - width / 2), valueAt(this.x, this.x.to + width / 2));
      else if (event.key === 'Escape' || event.key === '0')
        chart.zoom();
      else
        return;
      event.preventDefault();
    }

    /* As it was drawn, or the part of it between two x, as high as what is there. */
    draw(zoom) {
      this.x = this.asDrawn.x;
      this.y = this.asDrawn.y;
      this.axes.innerHTML = this.asDrawn.axes;
      this.curves.innerHTML = this.asDrawn.curves;
      if (zoom) this.drawPart(zoom);
      for (const element of this.curves.querySelectorAll('[data-s]'))
        if (this.chart.hidden.has(Number(element.dataset.s))) element.style.display = 'none';
    }

    drawPart([low, high]) {
      const all = this.chart.data.series;
      this.x = {...this.x, low, high};
      let least = Infinity, most = -Infinity;
      all.forEach((series, s) => {
        if (this.chart.hidden.has(s)) return;
        for (const values of [series.y, series.low, series.high])
          for (const [, y] of values ? this.pieces(series, values).flat() : []) {
            least = Math.min(least, y);
            most = Math.max(most, y);
          }
      });
      if (least <= most && (!this.y.log || least > 0)) {
        const edge = this.y.log ? (most / least) ** 0.05 : (most - least) * 0.05;
        /* Where a line is cut, a constant may differ from itself in the last digit. */
        const flat = most - least <= 1e-9 * Math.abs(most);
        const around = !flat ? edge : this.y.log ? 2 : Math.abs(most) * 0.1 || 1;
        this.y = this.y.log ? {...this.y, low: least / around, high: most * around}
                            : {...this.y, low: least - around, high: most + around};
      }
      /* The numbers may need more space than those that were drawn first. */
      const longest = Math.max(...this.yTicks().map(value => tickText(value).length));
      this.x.from = Math.max(this.x.from, 28 + 7.4 * longest);
      this.drawAxes();
      this.curves.textContent = '';
      all.forEach((series, s) => this.drawBand(series, s));
      all.forEach((series, s) => this.drawSeries(series, s));
      const level = this.chart.data.level;
      if (level >= this.y.low && level <= this.y.high)
        make(this.curves, 'line', {class: 'level', x1: this.x.from, x2: this.x.to, y1: place(this.y, level),
                                   y2: place(this.y, level)});
    }

    get wide() { return this.svg.classList.contains('wide'); }

    yTicks() { return ticks(this.y, this.wide ? 6 : 5); }

    drawAxes() {
      const axes = this.axes;
      axes.textContent = '';
      const text = (x, y, anchor, value) => {
        make(axes, 'text', {x, y, 'text-anchor': anchor}).textContent = tickText(value);
      };
      let taken = -Infinity;
      for (const value of ticks(this.x, this.wide ? 8 : 4)) {
        const x = place(this.x, value), half = 3.7 * tickText(value).length;
        make(axes, 'line', {class: 'grid', x1: x, x2: x, y1: this.y.from, y2: this.y.to});
        if (x - half < taken + 4 || x + half > this.svg.viewBox.baseVal.width) continue;
        text(x, this.y.from + 16, 'middle', value);
        taken = x + half;
      }
      for (const value of this.yTicks()) {
        const y = place(this.y, value);
        make(axes, 'line', {class: 'grid', x1: this.x.from, x2: this.x.to, y1: y, y2: y});
        text(this.x.from - 8, y + 4, 'end', value);
      }
      make(axes, 'rect', {class: 'frame', x: this.x.from, y: this.y.to, width: this.x.to - this.x.from,
                          height: this.y.from - this.y.to});
    }

    /* Pieces of a line between the sides of the field, each a list of points; of marks, those that lie there. */
    pieces(series, values) {
      const all = [], {low, high} = this.x;
      const cut = ([x1, y1], [x2, y2], x) => {
        const share = (scale(this.x, x) - scale(this.x, x1)) / (scale(this.x, x2) - scale(this.x, x1));
        const y = scale(this.y, y1) + share * (scale(this.y, y2) - scale(this.y, y1));
        return [x, this.y.log ? Math.exp(y) : y];
      };
      let piece = null, before = null;
      series.x.forEach((x, i) => {
        const point = isNumber(values[i]) ? [x, values[i]] : null, inside = x >= low && x <= high;
        if (!point || (series.marks && !inside)) { piece = before = null; return; }
        /* Where the line comes in and where it leaves. */
        if (before && before[0] < low && x > low) all.push(piece = [cut(before, point, low)]);
        if (inside && !piece) all.push(piece = []);
        if (inside) piece.push(point);
        else if (piece && before[0] < high) piece.push(cut(before, point, high));
        if (!inside) piece = null;
        before = point;
      });
      return all;
    }

    path(list) {
      return list.map(([x, y]) => place(this.x, x).toFixed(2) + ' ' +
                                  clamp(place(this.y, y), this.y.to, this.y.from).toFixed(2)).join('L');
    }

    drawBand(series, s) {
      if (!series.low) return;
      const highs = this.pieces(series, series.high), lows = this.pieces(series, series.low);
      const d = highs.map((piece, i) => 'M' + this.path(piece) + 'L' + this.path(lows[i].reverse()) + 'Z').join('');
      const faint = this.chart.data.series.length > 3 ? 'faint ' : '';
      make(this.curves, 'path', {class: 'band ' + faint + series.class, 'data-s': s, d});
    }

    drawSeries(series, s) {
      const pieces = this.pieces(series, series.y);
      if (series.marks) {
        for (const [x, y] of pieces.flat())
          make(this.curves, 'circle', {class: series.class, 'data-s': s, r: 4, cx: place(this.x, x), cy: place(this.y, y)});
        return;
      }
      const d = pieces.map(piece => 'M' + this.path(piece) + (piece.length > 1 ? '' : 'h0')).join('');
      make(this.curves, 'path', {class: 'curve ' + series.class, 'data-s': s, d});
    }
  }

  /* ---- a chart: its drawings, legend and values at the cursor ---- */

  class Chart {
    constructor(figure, data, state) {
      this.figure = figure;
      this.data = data;
      this.hidden = new Set(state ? state.hidden : []);
      this.range = state ? state.range : null;
      figure.classList.add('scripted');
      this.tip = figure.appendChild(document.createElement('div'));
      this.tip.className = 'tip';
      this.tip.hidden = true;
      this.tip.setAttribute('role', 'status');
      this.fields = [...figure.querySelectorAll('svg > .field')].map(group => new Field(this, group));
      this.entries = [...figure.querySelectorAll('figcaption [data-s]')];
      for (const entry of this.entries) this.listen(entry);
      this.draw();
    }

    get name() { return this.fields.length ? this.fields[0].svg.getAttribute('aria-label') : ''; }

    listen(entry) {
      const toggle = event => {
        const s = Number(entry.dataset.s);
        if (event.type === 'keydown' && event.key !== 'Enter' && event.key !== ' ') return;
        event.preventDefault();
        if (!this.hidden.delete(s)) this.hidden.add(s);
        this.draw();
      };
      entry.tabIndex = 0;
      entry.setAttribute('role', 'button');
      entry.addEventListener('click', toggle);
      entry.addEventListener('keydown', toggle);
    }

    draw() {
      for (const entry of this.entries)
        entry.setAttribute('aria-pressed', String(!this.hidden.has(Number(entry.dataset.s))));
      for (const field of this.fields) field.draw(this.range);
      this.hide();
    }

    /* To the part between two x; without them, or beyond what there is, to all of it. */
    zoom(low, high) {
      const whole = this.fields[0].asDrawn.x;
      const all = low === undefined || (low <= whole.low && high >= whole.high);
      const range = all ? null : [Math.max(low, whole.low), Math.min(high, whole.high)];
      if (range && !(range[1] > range[0])) return;
      this.range = range;
      this.draw();
    }

    hide() {
      this.at = undefined;
      this.tip.hidden = true;
      for (const field of this.fields) field.cursor.setAttribute('visibility', 'hidden');
    }

    /* The point of a series nearest to an x; -1: there is none. */
    nearest(series, x) {
      let best = -1;
      series.x.forEach((at, i) => {
        if (isNumber(series.y[i]) && (best < 0 || Math.abs(at - x) < Math.abs(series.x[best] - x))) best = i;
      });
      return best;
    }

    row(series, text) {
      const line = this.tip.appendChild(document.createElement('div')), colour = document.createElement('i');
      if (series) colour.className = series.class.split(' ').find(word => /^c\d|^reference/.test(word)) || '';
      if (series) line.appendChild(colour);
      line.appendChild(document.createTextNode(text));
    }

    show(field, pixelX, pixelY) {
      const x = valueAt(field.x, clamp(pixelX, field.x.from, field.x.to));
      this.hide();
      this.tip.textContent = '';
      if (this.data.series.some(series => series.marks)) this.listMark(field, pixelX, pixelY);
      else this.listValues(field, x);
      if (!this.tip.firstChild) return;
      this.at = pixelX;
      this.tip.hidden = false;
      this.tip.style.left = 0;
      const share = this.figure.clientWidth / field.svg.viewBox.baseVal.width;
      const left = pixelX * share + 14, width = this.tip.offsetWidth;
      this.tip.style.left = (left + width <= this.figure.clientWidth ? left : Math.max(0, pixelX * share - width - 14)) + 'px';
      this.tip.style.top = field.svg.offsetTop + field.y.to * share + 8 + 'px';
    }

    listValues(field, x) {
      let shown;
      this.data.series.forEach((series, s) => {
        const i = this.hidden.has(s) ? -1 : this.nearest(series, x);
        if (i < 0 || series.x[i] < field.x.low || series.x[i] > field.x.high) return;
        if (series.x[i] !== shown) this.row(null, this.data.x + ' ' + number(shown = series.x[i]));
        const spread = series.low && series.low[i] < series.high[i];
        this.row(series, series.name + ': ' + number(series.y[i]) +
                         (spread ? ' (median of ' + number(series.low[i]) + ' to ' + number(series.high[i]) + ')' : ''));
      });
      if (shown === undefined) return;
      const at = clamp(place(field.x, x), field.x.from, field.x.to);
      field.cursor.setAttribute('x1', at);
      field.cursor.setAttribute('x2', at);
      field.cursor.setAttribute('visibility', 'visible');
    }

    /* The point nearest to the pointer, or by the keyboard nearest to its x. */
    listMark(field, pixelX, pixelY) {
      let best = pixelY === undefined ? Infinity : 24, found = null;
      this.data.series.forEach((series, s) => {
        if (!series.marks || this.hidden.has(s)) return;
        series.x.forEach((x, i) => {
          if (x < field.x.low || x > field.x.high || !isNumber(series.y[i])) return;
          const dx = place(field.x, x) - pixelX, dy = pixelY === undefined ? 0 : place(field.y, series.y[i]) - pixelY;
          if (Math.hypot(dx, dy) < best) best = Math.hypot(dx, dy), found = [series, i];
        });
      });
      if (!found) return;
      const [series, i] = found;
      this.row(series, series.name + (series.marks[i] ? ', ' + series.marks[i] : ''));
      this.row(null, number(series.y[i]) + ' ' + this.data.y + ', ' + number(series.x[i]) + ' ' + this.data.x);
    }
  }

  /* ---- the page ---- */

  let charts = [];

  const start = () => {
    const states = new Map(charts.map(chart => [chart.name, chart]));
    charts = [];
    for (const figure of document.querySelectorAll('figure')) {
      const data = figure.querySelector('script[type="application/json"]');
      if (!data) continue;
      const name = figure.querySelector('svg').getAttribute('aria-label');
      charts.push(new Chart(figure, JSON.parse(data.textContent), states.get(name)));
    }
  };

  /* A page that is served: the next version of it takes its place, zoomed and folded as this one. */
  const refresh = async () => {
    const live = document.querySelector('[data-refresh]');
    if (dragging) return wait();
    try {
      const answer = await fetch(location, {cache: 'no-store'});
      if (!answer.ok) throw new Error(answer.statusText);
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const open = new Set([...document.querySelectorAll('details[open] > summary')].map(s => s.textContent));
      document.body.innerHTML = next.body.innerHTML;
      for (const summary of document.querySelectorAll('details > summary'))
        if (open.has(summary.textContent)) summary.parentElement.open = true;
      start();
    } catch (error) {
      live.textContent = 'The run does not answer: what is here does not change any more.';
    }
    wait();
  };
  const wait = () => {
    const live = document.querySelector('[data-refresh]');
    if (live) setTimeout(refresh, 1000 * Number(live.dataset.refresh));
  };

  start();
  wait();
})();
