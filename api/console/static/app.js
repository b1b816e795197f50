'use strict';
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const whole = new Intl.NumberFormat('en-US', {maximumFractionDigits: 0});
  const tenths = new Intl.NumberFormat('en-US', {maximumFractionDigits: 1});
  const silenceMax = 15000; // ms without a word after which the connection is made anew
  const goneAfter = 5000;   // ms after which a campaign that is told no more leaves the page
  const pointsMax = 600;    // seconds that plots hold

  const set = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };
  const status = $('#live');
  const say = (text, bad) => { set(status, text); status.className = bad ? 'bad' : 'good'; };

  const duration = (ms) => ms < 1000 ? `${whole.format(ms)} ms` : ms < 120000 ? `${tenths.format(ms / 1000)} s` :
    ms < 7200000 ? `${whole.format(ms / 60000)} min` : `${whole.format(ms / 3600000)} h`;

  // watch keeps a connection and calls onEvent for each event. A connection that is lost or silent is said to be, and made anew.
  const watch = (url, onEvent) => {
    let source, silence, again;
    const connect = () => {
      clearTimeout(again);
      if (source) source.close();
      source = new EventSource(url);
      source.onopen = () => say('Live', false);
      source.onmessage = (message) => {
        listen();
        say('Live', false);
        onEvent(JSON.parse(message.data));
      };
      source.addEventListener('problem', (message) => { listen(); say(JSON.parse(message.data).detail, true); });
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
        } catch { /* away: try on */ }
        connect();
      }, 2000);
    };
    connect();
  };

  const refusedText = (byCode) => Object.entries(byCode).sort((a, b) => b[1] - a[1])
    .map(([code, n]) => `${tenths.format(n)} ${code.replaceAll('_', ' ')}`).join(', ') || '0';

  // fill writes an event into a card or a campaign's page.
  const fill = (root, e) => {
    const figure = (name, text) => set($(`[data-figure=${name}]`, root), text);
    const bar = $('progress', root);
    bar.max = Math.max(1, e.total);
    bar.value = e.remaining;
    figure('left', `${whole.format(e.remaining)} of ${whole.format(e.total)}`);
    figure('accepted', tenths.format(e.accepted_per_s));
    figure('refused', refusedText(e.refused_per_s));
    figure('backlog', e.backlog ? `${whole.format(e.backlog)} units, the oldest ${duration(e.backlog_age_ms)} old` : '0');
    const marks = [];
    if (e.status === 'fenced') marks.push(['fenced: takes no claims until MySQL has proven what is true', 'bad']);
    else if (e.status !== 'open') marks.push([e.status, 'warn']);
    if (e.low && e.remaining > 0) marks.push(['low', 'warn']);
    if (e.remaining === 0) marks.push(['sold out', 'warn']);
    if (e.parked) marks.push([`${whole.format(e.parked)} units parked`, 'bad']);
    if (e.drift) marks.push([`drift of ${whole.format(e.drift)} units`, 'bad']);
    const out = (e.shards || []).filter((s) => s.status === 'fenced' || s.status === 'away').length;
    if (out) marks.push([`${out} of ${e.shards.length} shards take no claims`, 'bad']);
    const age = Date.parse(e.at) - Date.parse(e.books_as_of);
    if (age > 5000) marks.push([`MySQL was last read ${duration(age)} ago`, 'bad']);
    if (!e.in_redis && e.status !== 'fenced') marks.push(['not in Redis: nobody claims', '']);
    const list = $('.marks', root), text = JSON.stringify(marks);
    if (list.dataset.text !== text) {
      list.dataset.text = text;
      list.replaceChildren(...marks.map(([words, kind]) => {
        const mark = document.createElement('span');
        mark.className = `mark ${kind}`;
        mark.textContent = words;
        return mark;
      }));
    }
  };

  // fillShards writes the shards of an event into their table, a row each.
  const fillShards = (table, e) => {
    const body = $('tbody', table);
    while (body.rows.length < e.shards.length) {
      const row = body.insertRow(), bar = document.createElement('progress');
      for (let i = 0; i < 7; i++) row.insertCell();
      bar.setAttribute('aria-label', `units free in shard ${body.rows.length}`);
      row.cells[3].append(document.createElement('span'), bar);
    }
    e.shards.forEach((s, i) => {
      const cells = body.rows[i].cells, bar = $('progress', cells[3]);
      bar.max = Math.max(1, s.granted);
      bar.value = s.free;
      set($('span', cells[3]), whole.format(s.free));
      const state = s.status.replaceAll('_', ' ') + (s.move_open ? ', a move is open' : '');
      [s.shard, s.partition, whole.format(s.granted), null, whole.format(s.claimed), `${whole.format(s.synced_seq)} of ${whole.format(s.seq)}`, state]
        .forEach((text, j) => { if (text !== null) set(cells[j], String(text)); });
      cells[6].className = s.status === 'fenced' || s.status === 'away' ? 'bad' : '';
    });
    const open = e.shards.filter((s) => s.move_open).length;
    set($('[data-figure=moves]'), `${whole.format(e.reserve)} units in the reserve, ${open === 1 ? '1 move is' : `${open} moves are`} open`);
  };

  const overview = (list) => {
    const cards = new Map(); // campaign id -> {element, seen}
    const place = (id) => {
      const element = $('#card').content.firstElementChild.cloneNode(true);
      const link = $('a', element);
      link.textContent = id;
      link.href = `/console/campaigns/${encodeURIComponent(id)}`;
      $('progress', element).setAttribute('aria-label', `units left of ${id}`);
      const next = [...cards.keys()].filter((other) => other > id).sort()[0];
      list.insertBefore(element, next ? cards.get(next).element : null);
      const card = {element, seen: 0};
      cards.set(id, card);
      return card;
    };
    watch(list.dataset.watch, (e) => {
      const card = cards.get(e.campaign_id) || place(e.campaign_id);
      card.seen = Date.now();
      fill(card.element, e);
    });
    setInterval(() => {
      for (const [id, card] of cards) {
        if (status.className === 'good' && Date.now() - card.seen > goneAfter) {
          card.element.remove();
          cards.delete(id);
        }
      }
      $('#none').hidden = cards.size > 0 || status.className !== 'good';
    }, 1000);
  };

  const colors = () => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    return {text: color('--text'), grid: color('--line'), series: [1, 2, 3, 4, 5, 6, 7, 8].map((n) => color(`--series-${n}`))};
  };

  // plot draws named series over the last minutes; names may grow. It holds pointsMax points and no more.
  const clock = (seconds) => new Date(1000 * seconds).toISOString().slice(11, 19);
  const plot = (root, names) => {
    const times = [], values = new Map(names.map((name) => [name, []]));
    let chart, width = 0;
    const draw = () => {
      width = root.clientWidth;
      if (chart) chart.destroy();
      const {text, grid, series} = colors();
      const axis = {stroke: text, grid: {stroke: grid, width: 1}, ticks: {stroke: grid}};
      chart = new uPlot({
        width, height: 180, cursor: {drag: {setScale: false}}, legend: {show: values.size > 1},
        scales: {y: {range: (u, low, high) => [0, Math.max(1, high * 1.05)]}},
        axes: [{...axis, space: 90, values: (u, ticks) => ticks.map(clock)}, {...axis, size: 70, values: (u, ticks) => ticks.map((v) => tenths.format(v))}],
        series: [{label: 'at', value: (u, v) => v == null ? '–' : clock(v)}, ...[...values.keys()].map((name, i) => ({
          label: name.replaceAll('_', ' '), stroke: series[i % series.length], width: 2, points: {show: false},
          value: (u, v) => v == null ? '–' : tenths.format(v),
        }))],
      }, [times, ...values.values()], root);
    };
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
    new ResizeObserver(() => { if (chart && Math.abs(root.clientWidth - width) > 4) draw(); }).observe(root);
    return (at, point) => {
      let grown = !chart;
      for (const name of Object.keys(point)) {
        if (!values.has(name)) {
          values.set(name, times.map(() => 0));
          grown = true;
        }
      }
      times.push(at);
      for (const [name, list] of values) list.push(point[name] ?? 0);
      while (times.length > pointsMax) {
        times.shift();
        for (const list of values.values()) list.shift();
      }
      if (grown) draw();
      else chart.setData([times, ...values.values()]);
    };
  };

  const campaign = (root) => {
    const left = plot($('#plot-left'), ['left']), rates = plot($('#plot-rates'), ['accepted']), backlog = plot($('#plot-backlog'), ['backlog']),
      flush = plot($('#plot-flush'), ['flush']);
    const seen = []; // [seconds, units left] of the last half minute
    const pace = (at, e) => {
      seen.push([at, e.remaining]);
      while (seen.length > 30) seen.shift();
      const [from, was] = seen[0], rate = (was - e.remaining) / (at - from);
      if (e.remaining === 0) return 'sold out';
      return rate > 0 ? `gone in ${duration(1000 * e.remaining / rate)}` : 'not going';
    };
    watch(root.dataset.watch, (e) => {
      const at = Date.parse(e.at) / 1000;
      fill(root, e);
      set($('[data-figure=pace]', root), pace(at, e));
      left(at, {left: e.remaining});
      rates(at, {accepted: e.accepted_per_s, ...e.refused_per_s});
      backlog(at, {backlog: e.backlog});
      flush(at, {flush: e.flush_ms});
      if (e.shards && $('#shards')) fillShards($('#shards'), e);
    });
  };

  // refresh puts in anew what changes slowly, unless somebody is in it.
  const refresh = (root) => {
    let last = '';
    setInterval(async () => {
      if (document.hidden || root.contains(document.activeElement)) return;
      try {
        const answer = await fetch(root.dataset.refresh, {cache: 'no-store'});
        const text = await answer.text();
        if (answer.ok && text !== last) {
          last = text;
          root.innerHTML = text;
        }
      } catch { /* the line of the connection says so */ }
    }, 5000);
  };

  document.querySelectorAll('[data-refresh]').forEach(refresh);
  if ($('#campaigns')) overview($('#campaigns'));
  if ($('#campaign')) campaign($('#campaign'));
})();
