import { get, name, post } from '../api.js';
import { act } from '../ask.js';
import { badge, change, el, given, replace, table } from '../dom.js';
import { away, bytes, clock, count, duration, isFull, rate, room } from '../format.js';
import { age, follow, live, stale } from '../live.js';
import { bars, lines } from '../plot.js';
import { when } from '../when.js';

const hour = 3600 * 1000;
const forecastEvery = 60000;

export const title = () => 'Overview';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  if (!live.overview) at.append(el('p.none', null, 'Waiting for the bridge …'));
  const forecasts = new Map();
  follow((overview) => {
    root.classList.toggle('stale', stale() !== null);
    for (const q of overview.queues) look(q, forecasts, signal);
    replace(at, trouble(overview), queues(overview), plots(overview, forecasts));
  }, signal);
}

// look reads a queue's forecast once a minute.
function look(q, forecasts, signal) {
  const known = forecasts.get(q.name);
  if (known && performance.now() - known.asked < forecastEvery) return;
  const next = { ...known, asked: performance.now() };
  forecasts.set(q.name, next);
  const from = new Date();
  get(`queues/${name(q.name)}/forecast`, { from: from.toISOString(), to: new Date(from.getTime() + 24 * hour).toISOString(), step: '30m' }, signal)
    .then((f) => { next.forecast = f; next.failed = null; })
    .catch((err) => { Object.assign(next, { forecast: null, failed: err.message, asked: next.asked - forecastEvery + 5000 }); });
}

// trouble is what needs somebody, before anything else.
function trouble(overview) {
  const { queues: list, sinks, budgets, redis_memory: redis, at } = overview;
  const found = [];
  const why = stale();
  if (why) found.push(['bad', 'unknown', why, `All that is shown is ${duration(age())} old, from ${clock(at)}. Nobody knows how it is now.`]);
  for (const s of sinks.filter((one) => !one.up)) found.push(['bad', 'down', el('a', { href: '#/sinks' }, `Sink ${s.name} is down`), [s.since ? ['since ', when(s.since), ': '] : '', s.detail]]);
  for (const q of list) found.push(...lost(q), ...ofQueue(q, budgets[q.name]), ...paused(q));
  if (isSoonFull(redis) && list.length) found.push(['warn', 'look', el('a', { href: page(list[0]) }, `Redis ${fills(redis)}`), `Of its memory: ${room(redis)}.`]);
  const made = list.filter((q) => q.made_at && Date.now() - Date.parse(q.made_at) < 24 * hour)
    .map((q) => el('small', null, ` Queue ${q.name} was made ${away(q.made_at)}: what it had before, if it had anything, Redis has lost.`));
  if (!found.length) {
    return el('p.calm', null, badge('good', 'all well'), ` as of ${clock(at, false)}. Every sink is up, every shard is held, nothing is paused, late, parked, dead or soon full.`, made);
  }
  return el('ul.trouble', null,
    found.map(([kind, word, what, because, action]) => el('li', null, badge(kind, word), ' ', what, because ? el('small', null, ' ', because) : '', action ? [' ', action] : '')),
    made.map((m) => el('li', null, m)));
}

const page = (q, to = 'queue') => `#/${to}?queue=${encodeURIComponent(q.name)}`;

// ofQueue is what is wrong with a queue.
function ofQueue(q, budget) {
  if (q.error) return [['bad', 'unknown', `Queue ${q.name} cannot be read`, [given(q.error), ' How many messages wait, and whether any are late, is not known.']]];
  const found = [];
  const add = (kind, what, why, to) => found.push([kind, kind === 'bad' ? 'down' : 'look', el('a', { href: to || page(q) }, what), why]);
  if (q.held < q.shards) add('bad', `Queue ${q.name}: ${q.shards - q.held} of ${q.shards} shards have no holder`, 'Nothing is published from these.');
  if (q.oldest_due_age_s > 5) add('warn', `Queue ${q.name} is late by ${duration(q.oldest_due_age_s)}`, `${count(q.due)} are due.`);
  if (q.parked) add('warn', `Queue ${q.name}: ${count(q.parked)} parked`, 'Their routes are unavailable, paused, or slowed down by a rate.', '#/sinks');
  if (q.dead) add('warn', `Queue ${q.name}: ${count(q.dead)} dead letters`, '', page(q, 'dead'));
  if (isSoonFull(budget)) add('warn', `Queue ${q.name} ${fills(budget)}`, `Of its budget: ${room(budget)}.`);
  return found;
}

// paused are the pauses of a queue, by whom and since when, each with what ends it.
function paused(q) {
  return (q.paused || []).map((p) => ['warn', 'paused',
    el('a', { href: page(q) }, p.topic ? ['Topic ', given(p.topic), ` of queue ${q.name} is paused`] : `Queue ${q.name} is paused`),
    ['since ', when(p.since), ', by ', p.by ? given(p.by) : 'an unknown', '. Nothing of it is published.'],
    resume(q.name, p)]);
}

// resume is the button that ends a pause.
export function resume(queue, p) {
  const what = p.topic ? given(p.topic) : queue;
  return change('Resume …', () => act({
    title: ['Resume ', what], effect: 'What is due is published at once, in due order.', action: 'Resume',
    does: () => post(`queues/${name(queue)}:resume`, p.topic ? { topic: p.topic } : {}),
    done: () => [p.topic ? given(p.topic) : queue, ' is resumed.'],
  }));
}

// lost is what Redis has lost, until an operator has said that it is known.
function lost(q) {
  const what = {
    queue: () => `Redis has lost queue ${q.name} and all its messages`,
    shards: (l) => `Redis has lost ${(l.shards || []).length} ${(l.shards || []).length === 1 ? 'shard' : 'shards'} of queue ${q.name}, and the messages in them`,
    layout: () => `Redis has lost the layout of queue ${q.name}, which was restored`,
  };
  return (q.losses || []).map((l) => ['bad', 'lost', what[l.kind](l),
    [l.shards ? `Shards ${l.shards.join(', ')}. ` : '', 'Noticed ', when(l.at), l.instance ? ` by ${l.instance}` : '', '. An empty queue is no proof that all was published.'],
    change('Acknowledge …', () => act({
      title: `Acknowledge the loss of queue ${q.name}`, effect: 'The overview tells of it no more. What was lost stays lost; the audit keeps who has acknowledged it.', action: 'Acknowledge',
      does: () => post(`queues/${name(q.name)}/losses:acknowledge`, { losses: [l.id] }), done: () => 'The loss is acknowledged.',
    }))]);
}

// isSoonFull is so within a day; further ahead the bridge tells nothing.
function isSoonFull(r) {
  return r && (isFull(r) || r.full_at);
}

function fills(r) {
  return isFull(r) ? 'is full' : 'will be full';
}

function queues({ queues: list }) {
  const late = (q, part) => (q.lateness ? duration(q.lateness[part]) : '–');
  return table('Queues', [
    { name: 'Queue', of: (q) => [el('a', { href: page(q) }, q.name), (q.paused || []).length ? [' ', badge('warn', q.paused.some((p) => !p.topic) ? 'paused' : 'paused in part')] : ''] },
    { name: 'Sink', of: (q) => q.sink },
    { name: 'Waiting', number: true, of: (q) => count(q.waiting) },
    { name: 'Due', number: true, of: (q) => count(q.due) },
    { name: 'Parked', number: true, of: (q) => count(q.parked) },
    { name: 'In flight', number: true, of: (q) => count(q.in_flight) },
    { name: 'Dead', number: true, of: (q) => (q.dead ? el('a', { href: page(q, 'dead') }, count(q.dead)) : count(q.dead)) },
    { name: 'Scheduled', number: true, of: (q) => rate(q.rates?.scheduled) },
    { name: 'Published', number: true, of: (q) => rate(q.rates?.published) },
    { name: 'Late p50', number: true, of: (q) => late(q, 'p50_s') },
    { name: 'Late p99', number: true, of: (q) => late(q, 'p99_s') },
    { name: 'Oldest due', number: true, of: (q) => (q.oldest_due_age_s === undefined ? 'unknown' : q.oldest_due_age_s ? duration(q.oldest_due_age_s) : '–') },
  ], list, 'There is no queue in the configuration.');
}

function plots({ queues: list }, forecasts) {
  return list.map((q) => {
    const points = live.history.get(q.name) || [];
    return el('section', null, el('h2', null, q.name), el('div.plots', null,
      lines('Rates, last ten minutes', points, [
        { name: 'scheduled', of: (p) => p.scheduled }, { name: 'published', of: (p) => p.published }], rate),
      lines('Lateness, published by this instance', points, [
        { name: 'p50', of: (p) => p.p50 }, { name: 'p99', of: (p) => p.p99 }], duration),
      forecast(forecasts.get(q.name))));
  });
}

function forecast({ forecast: f, failed } = {}) {
  const caption = 'Forecast: falls due in the next 24 hours, by half hours';
  if (!f) return el('figure', null, el('figcaption', null, caption), el('p.none', null, failed ? `Not known: ${failed}` : 'Counting …'));
  const sum = f.steps.reduce((all, s) => all + s.messages, 0);
  return bars([caption, el('span', null, el('b', null, count(sum)), ` messages, about ${bytes(sum * f.message_bytes.mean)}; as of ${clock(f.now, false)}`)],
    caption, f.steps, f.to, count, (s) => `${clock(s.at)}: ${count(s.messages)} messages`, true);
}
