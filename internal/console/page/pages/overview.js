import { badge, el, replace, table } from '../dom.js';
import { count, duration, rate } from '../format.js';
import { follow, live } from '../live.js';
import { lines } from '../plot.js';
import { when } from '../when.js';

export const title = () => 'Overview';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  if (!live.overview) at.append(el('p.none', null, 'Waiting for the bridge …'));
  follow((overview) => replace(at, trouble(overview), queues(overview), plots(overview)), signal);
}

// trouble is what needs somebody, before anything else.
function trouble({ queues: list, sinks }) {
  const found = [];
  for (const s of sinks.filter((one) => !one.up)) found.push(['bad', el('a', { href: '#/sinks' }, `Sink ${s.name} is down`), [s.since ? ['since ', when(s.since), ': '] : '', s.detail]]);
  for (const q of list) {
    const at = (page) => `#/${page}?queue=${encodeURIComponent(q.name)}`;
    if (q.error) found.push(['bad', `Queue ${q.name} cannot be read`, q.error]);
    if (!q.error && q.held < q.shards) {
      found.push(['bad', el('a', { href: at('queue') }, `Queue ${q.name}: ${q.shards - q.held} of ${q.shards} shards have no holder`), 'Nothing is published from these.']);
    }
    if (q.oldest_due_age_s > 5) found.push(['warn', el('a', { href: at('queue') }, `Queue ${q.name} is late by ${duration(q.oldest_due_age_s)}`), `${count(q.due)} are due.`]);
    if (q.parked) found.push(['warn', el('a', { href: '#/sinks' }, `Queue ${q.name}: ${count(q.parked)} parked`), 'Their routes are unavailable or paused.']);
    if (q.dead) found.push(['warn', el('a', { href: at('dead') }, `Queue ${q.name}: ${count(q.dead)} dead letters`), '']);
  }
  if (!found.length) return el('p.calm', null, badge('good', 'all well'), ' Every sink is up, every shard is held, nothing is late, parked or dead.');
  return el('ul.trouble', null, found.map(([kind, what, why]) => el('li', null, badge(kind, kind === 'bad' ? 'down' : 'look'), ' ', what, why ? el('small', null, ' ', why) : '')));
}

function queues({ queues: list }) {
  return table('Queues', [
    { name: 'Queue', of: (q) => el('a', { href: `#/queue?queue=${encodeURIComponent(q.name)}` }, q.name) },
    { name: 'Sink', of: (q) => q.sink },
    { name: 'Waiting', number: true, of: (q) => count(q.waiting) },
    { name: 'Due', number: true, of: (q) => count(q.due) },
    { name: 'Parked', number: true, of: (q) => count(q.parked) },
    { name: 'In flight', number: true, of: (q) => count(q.in_flight) },
    { name: 'Dead', number: true, of: (q) => (q.dead ? el('a', { href: `#/dead?queue=${encodeURIComponent(q.name)}` }, count(q.dead)) : '0') },
    { name: 'Scheduled', number: true, of: (q) => rate(q.rates?.scheduled) },
    { name: 'Published', number: true, of: (q) => rate(q.rates?.published) },
    { name: 'Late p50', number: true, of: (q) => (q.lateness ? duration(q.lateness.p50_s) : '–') },
    { name: 'Late p99', number: true, of: (q) => (q.lateness ? duration(q.lateness.p99_s) : '–') },
    { name: 'Oldest due', number: true, of: (q) => (q.oldest_due_age_s ? duration(q.oldest_due_age_s) : '–') },
  ], list, 'There is no queue in the configuration.');
}

function plots({ queues: list }) {
  return list.map((q) => {
    const points = live.history.get(q.name) || [];
    return el('section', null, el('h2', null, q.name), el('div.plots', null,
      lines('Rates, last minutes', points, [
        { name: 'scheduled', of: (p) => p.scheduled }, { name: 'published', of: (p) => p.published }], rate),
      lines('Lateness, published by this instance', points, [
        { name: 'p50', of: (p) => p.p50 }, { name: 'p99', of: (p) => p.p99 }], duration)));
  });
}
