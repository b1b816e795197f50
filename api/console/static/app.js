'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
  const tenths = new Intl.NumberFormat('en-US', {maximumFractionDigits: 1});
  const silenceMax = 15000; // ms without a word after which the connection is made again
  const liveMax = 600;      // live points that plots hold, one a second
  const problemFor = 2500;  // ms for which a problem is shown unless it is repeated

  const set = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };
  const plural = (n, thing) => `${whole.format(n)} ${thing}${Math.abs(n) === 1 ? '' : 's'}`;
  const duration = (ms) => ms < 10 ? `${tenths.format(ms)} ms` : ms < 1000 ? `${whole.format(ms)} ms` : ms < 120000 ? `${tenths.format(ms / 1000)} s` :
    ms < 7200000 ? `${whole.format(ms / 60000)} min` : `${whole.format(ms / 3600000)} h`;

  // Times are shown in the reader's own zone, with UTC on hover.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const local = new Intl.DateTimeFormat('sv-SE', {dateStyle: 'short', timeStyle: 'medium'});
  const localize = (root) => root.querySelectorAll('time[datetime]:not([title])').forEach((time) => {
    time.title = time.textContent;
    time.textContent = local.format(new Date(time.dateTime));
  });

  // say writes the line of the connection. Figures that aren't live are marked
  // as old.
  const status = $('#live');
  let problemAt = 0;
  const say = (text, bad, old = bad) => {
    if (!bad && Date.now() - problemAt < problemFor) return;
    if (bad) problemAt = Date.now();
    set(status, text);
    status.className = bad ? 'bad' : 'good';
    document.body.classList.toggle('old', old);
    if (old) document.querySelectorAll('[data-figure=accepted],[data-figure=refused],[data-figure=pace]').forEach((e) => set(e, 'not known'));
  };

  // watch keeps a connection. It calls onEvent for each event, and onPast for
  // the past that a connection starts with. A lost or silent connection is
  // reported and opened again.
  const watch = (url, onEvent, onPast) => {
    let source, silence, again;
    set(status, 'Connecting …');
    const connect = () => {
      clearTimeout(again);
      if (source) source.close();
      if (document.hidden) return;
      source = new EventSource(url);
      source.onopen = () => { listen(); say('Live', false); };
      source.onmessage = (message) => {
        listen();
        say('Live', false);
        onEvent(JSON.parse(message.data));
      };
      source.addEventListener('problem', (message) => {
        const problem = JSON.parse(message.data), said = $('.strip'); // the strip names what is away
        listen();
        if (problem.server !== 'mysql') say(said ? 'Figures are old.' : problem.detail, true);
        else if (!said) say(problem.detail, true, false);
      });
      if (onPast) source.addEventListener('past', (message) => onPast(JSON.parse(message.data)));
      source.onerror = () => {
        say('The connection is lost. Figures are old. Connecting again …', true);
        if (source.readyState === EventSource.CLOSED) later();
      };
    };
    const listen = () => {
      clearTimeout(silence);
      silence = setTimeout(() => {
        say('The service has been silent for a while. Figures are old. Connecting again …', true);
        later();
      }, silenceMax);
    };
    const later = () => {
      clearTimeout(again);
      again = setTimeout(async () => {
        try {
          const answer = await fetch('/console/session', {cache: 'no-store'});
          if (answer.status === 401) { // only signing in helps
            source.close();
            say('You are signed out. Load the page again to sign in.', true);
            return;
          }
        } catch { /* unreachable: retry */ }
        connect();
      }, 2000);
    };
    const close = () => { clearTimeout(again); clearTimeout(silence); if (source) source.close(); };
    // A hidden tab keeps no connection: without HTTP/2 a browser has six for all
    // tabs, and the seventh would wait for ever.
    const seen = () => { if (document.hidden) close(); else connect(); };
    document.addEventListener('visibilitychange', seen);
    connect();
    return () => { document.removeEventListener('visibilitychange', seen); close(); };
  };

  const refusedText = (byCode) => Object.entries(byCode).sort((a, b) => b[1] - a[1])
    .map(([code, n]) => `${tenths.format(n)} ${code.replaceAll('_', ' ')}`).join(', ') || '0';

  // marksOf returns a campaign's problems, the worst first; else its state.
  const marksOf = (e, {starts, ends}) => {
    const marks = [], now = Date.parse(e.at);
    const out = (e.shards || []).filter((s) => s.status === 'away').length;
    if (out) marks.push([`${out} of ${plural(e.shards.length, 'shard')} ${out === 1 ? 'takes' : 'take'} no claims`, 'bad']);
    if (e.parked) marks.push([`${plural(e.parked, 'unit')} parked`, 'bad']);
    if (e.lost_units) marks.push([`${plural(e.lost_units, 'unit')} lost`, 'bad']);
    if (e.drift) marks.push([`drift of ${plural(e.drift, 'unit')}`, 'bad']);
    if (e.status && e.status !== 'open') marks.push([e.status, 'warn']);
    if (e.low && e.remaining > 0) marks.push(['low', 'warn']);
    if (e.remaining === 0 && e.total > 0) marks.push(['sold out', 'warn']);
    if (e.status === 'open' && Date.parse(starts) > now) marks.push(['scheduled', '']);
    else if (e.status === 'open' && Date.parse(ends) <= now) marks.push(['ended', '']);
    else if (!marks.length) marks.push(['open', 'good']);
    return marks;
  };

  // fill writes an event into a row of the table or a campaign's page.
  const fill = (root, e) => {
    const figure = (name, text) => set($(`[data-figure=${name}]`, root), text);
    const booksKnown = Date.parse(e.books_as_of) > 0, bar = $('progress', root);
    if (bar) {
      bar.max = Math.max(1, e.total);
      bar.value = e.remaining;
    }
    const row = root.tagName === 'TR';
    figure('left', row ? whole.format(e.remaining) : `${whole.format(e.remaining)} of ${whole.format(e.total)}`);
    figure('source', '');
    figure('total', whole.format(e.total));
    figure('percent', e.total ? `${Math.floor(100 * e.claimed / e.total)} %` : '–');
    figure('claimed', whole.format(e.claimed));
    figure('accepted', e.first ? '–' : tenths.format(e.accepted_per_s));
    figure('refused', e.first ? '–' : row ? tenths.format(Object.values(e.refused_per_s).reduce((sum, n) => sum + n, 0)) : refusedText(e.refused_per_s));
    figure('backlog', !booksKnown ? 'not known' : row ? whole.format(e.backlog) : plural(e.backlog, 'unit'));
    figure('oldest', booksKnown && e.backlog ? `oldest ${duration(e.backlog_age_ms)}` : '');
    const marks = marksOf(e, root.dataset), list = $('.marks', root), text = JSON.stringify(marks);
    if (list.dataset.text !== text) {
      list.dataset.text = text;
      list.replaceChildren(...marks.map(([words, kind]) => {
        const mark = document.createElement('span');
        mark.className = `mark ${kind}`;
        mark.textContent = words;
        return mark;
      }));
    }
    return marks;
  };

  // fillShards writes the shards of an event into their table, a row each.
  const fillShards = (table, e) => {
    const body = $('tbody', table);
    e.shards.forEach((s, i) => {
      const cells = body.rows[i].cells, bar = $('progress', cells[3]);
      bar.max = Math.max(1, s.granted);
      bar.value = s.free;
      set($('span', cells[3]), whole.format(s.free));
      const state = s.status.replaceAll('_', ' ');
      [s.shard, s.partition, whole.format(s.granted), null, whole.format(s.claimed), `${whole.format(s.synced_seq)} of ${whole.format(s.seq)}`, state]
        .forEach((text, j) => { if (text !== null) set(cells[j], String(text)); });
      cells[6].className = s.status === 'away' ? 'bad' : '';
    });
    set($('[data-figure=moves]'), e.moves_open ? 'units are on their way between shards' : '');
  };

  // overview keeps the rows of the table live, also after a change of the page.
  const overview = () => {
    let stop, url;
    return () => {
      const table = $('#campaigns');
      if (table && table.dataset.watch === url) return;
      if (stop) stop();
      url = table ? table.dataset.watch : undefined;
      stop = table ? watch(url, (e) => {
        const row = $(`#campaigns tr[data-id="${CSS.escape(e.campaign_id)}"]`);
        if (row) fill(row, e);
      }) : undefined;
    };
  };

  const colors = () => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    return {text: color('--text'), grid: color('--line'), warn: color('--warn'), series: [1, 2, 3, 4, 5, 6, 7, 8].map((n) => color(`--series-${n}`))};
  };

  const clock = new Intl.DateTimeFormat('sv-SE', {timeStyle: 'medium'});
  // changes are the times of changes of the campaign, in seconds since 1970:
  // the rows of that table.
  const changes = () => [...document.querySelectorAll('#changes tbody time')].map((time) => Date.parse(time.dateTime) / 1000);

  // plot draws named series: the past, then live events. A missing rate is 0;
  // any other missing figure is unknown. All plots share one cursor.
  const plot = (root, unit, format, names) => {
    const missing = unit === 'claims/s' ? 0 : null;
    let times = [], values = new Map(names.map((name) => [name, []])), chart, width = 0;
    const data = () => [times, ...values.values()];
    const drawMarks = (u) => {
      const {warn} = colors(), {left, top, width: w, height} = u.bbox;
      u.ctx.save();
      u.ctx.strokeStyle = warn;
      u.ctx.setLineDash([4, 4]);
      for (const at of changes()) {
        const x = u.valToPos(at, 'x', true);
        if (x < left || x > left + w) continue;
        u.ctx.beginPath();
        u.ctx.moveTo(x, top);
        u.ctx.lineTo(x, top + height);
        u.ctx.stroke();
      }
      u.ctx.restore();
    };
    const draw = () => {
      width = root.clientWidth;
      if (chart) chart.destroy();
      const {text, grid, series} = colors();
      const axis = {stroke: text, grid: {stroke: grid, width: 1}, ticks: {stroke: grid}};
      chart = new uPlot({
        width, height: 180, cursor: {drag: {setScale: false}, sync: {key: 'campaign'}}, legend: {show: true},
        scales: {y: {range: (u, low, high) => [0, Math.max(unit === 'ms' || unit === 'claims/s' ? 1 : 4, high * 1.05)]}},
        hooks: {draw: [drawMarks]},
        axes: [{...axis, space: 90, values: (u, ticks) => ticks.map((t) => clock.format(1000 * t))},
          {...axis, size: 70, label: unit, labelSize: 20, values: (u, ticks) => ticks.map((v) => tenths.format(v)),
            incrs: unit === 'units' ? [1, 2, 5].flatMap((n) => [...Array(13).keys()].map((e) => n * 10 ** e)).sort((a, b) => a - b) : undefined}],
        series: [{label: 'at', value: (u, v) => v == null ? 'now' : clock.format(1000 * v)}, ...[...values.keys()].map((name, i) => ({
          label: name.replaceAll('_', ' '), stroke: series[i % series.length], width: 2, points: {show: false}, spanGaps: true,
          value: (u, v, place, index) => {
            const shown = index == null ? u.data[place].findLast((known) => known != null) : v;
            return shown == null ? '–' : format(shown);
          },
        }))],
      }, data(), root);
    };
    const know = (name) => {
      if (values.has(name)) return false;
      values.set(name, times.map(() => missing));
      return true;
    };
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
    new ResizeObserver(() => { if (chart && Math.abs(root.clientWidth - width) > 4) draw(); }).observe(root);
    return {
      past: (at, columns) => {
        times = at;
        values = new Map(names.map((name) => [name, times.map(() => missing)]));
        Object.entries(columns).forEach(([name, list]) => values.set(name, list));
        draw();
      },
      add: (at, point) => {
        if (at <= times[times.length - 1]) return;
        const grown = Object.keys(point).map(know).includes(true) || !chart;
        times.push(at);
        for (const [name, list] of values) list.push(name in point ? point[name] : missing);
        if (times.length > liveMax) {
          times = times.slice(-liveMax);
          for (const [name, list] of values) values.set(name, list.slice(-liveMax));
        }
        if (grown) draw();
        else chart.setData(data());
      },
    };
  };

  const campaign = (root) => {
    $('.plots').hidden = false;
    const count = (v) => plural(v, 'unit'), rate = (v) => `${tenths.format(v)}/s`;
    const left = plot($('#plot-left'), 'units', count, ['left']), rates = plot($('#plot-rates'), 'claims/s', rate, ['accepted']),
      backlog = plot($('#plot-backlog'), 'units', count, ['backlog']), flush = plot($('#plot-flush'), 'ms', duration, ['flush']),
      took = plot($('#plot-took'), 'ms', duration, ['p50', 'p99']);
    const seen = []; // [seconds, units left] of the last half minute
    const pace = (at, e) => {
      seen.push([at, e.remaining]);
      while (seen.length > 30) seen.shift();
      const [from, was] = seen[0], rate = (was - e.remaining) / (at - from);
      if (e.remaining === 0) return 'sold out';
      return rate > 0 ? `sold out in ${duration(1000 * e.remaining / rate)}` : 'nothing is claimed';
    };
    const showTook = (p50, p99) => { // of the last second with claims
      if (p50 != null) set($('[data-figure=took]', root), `${duration(p50)} · ${duration(p99)}`);
    };
    const onPast = (past) => {
      const at = past.at.map((ms) => ms / 1000);
      left.past(at, {left: past.left});
      rates.past([...at], past.rates);
      backlog.past([...at], {backlog: past.backlog});
      flush.past([...at], {flush: past.flush_ms});
      took.past([...at], {p50: past.p50_ms, p99: past.p99_ms});
      const last = past.p50_ms.findLastIndex((known) => known != null);
      showTook(past.p50_ms[last], past.p99_ms[last]);
    };
    watch(root.dataset.watch, (e) => {
      const at = Date.parse(e.at) / 1000;
      const found = fill(root, e);
      document.title = [...found.filter(([, kind]) => kind).slice(0, 1).map(([words]) => words), root.dataset.title, 'Dibs'].join(' · ');
      set($('[data-figure=pace]', root), pace(at, e));
      left.add(at, {left: e.remaining});
      if (!e.first) rates.add(at, {accepted: e.accepted_per_s, ...e.refused_per_s});
      backlog.add(at, {backlog: Date.parse(e.books_as_of) > 0 ? e.backlog : null});
      flush.add(at, {flush: e.flush_ms || null});
      took.add(at, {p50: e.p50_ms ?? null, p99: e.p99_ms ?? null});
      showTook(e.p50_ms, e.p99_ms);
      if (e.shards && $('#shards')) fillShards($('#shards'), e);
      const age = Date.parse(e.at) - Date.parse(e.books_as_of);
      if (age > 5000 && !$('main [role=alert]')) say('MySQL does not answer. What only MySQL knows is as it was, or not known.', true, false);
    }, onPast);
  };

  // refresh replaces what changes slowly, unless the user has the focus in it.
  // What can't be read is marked as old.
  const refresh = (root, then) => {
    let last = '';
    const every = 1000 * root.dataset.every;
    setInterval(async () => {
      if (document.hidden || root.contains(document.activeElement)) return;
      try {
        const answer = await fetch(root.dataset.refresh, {cache: 'no-store'}), text = await answer.text();
        root.classList.toggle('old', !answer.ok);
        if (!answer.ok || text === last) return;
        const open = [...root.querySelectorAll('details[open] summary')].map((e) => e.textContent);
        last = text;
        root.innerHTML = text;
        root.querySelectorAll('details').forEach((e) => { e.open = open.includes($('summary', e).textContent); });
        localize(root);
        then();
      } catch { root.classList.add('old'); }
    }, every);
  };

  localize(document);
  set($('#zone'), zone === 'UTC' ? 'times are UTC' : `times are ${zone}, UTC on hover`);
  const show = $('#campaigns') || $('#filter') ? overview() : () => {};
  show();
  document.querySelectorAll('[data-refresh]').forEach((root) => refresh(root, show));
  if ($('#campaign')) campaign($('#campaign'));
})();
