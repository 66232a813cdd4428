import { get, name, post } from '../api.js';
import { act } from '../ask.js';
import { badge, change, el, facts, field, given, input, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { away, bytes, clock, count, duration, rate, room } from '../format.js';
import { bars } from '../plot.js';
import { when } from '../when.js';
import { resume } from './overview.js';

const every = 2000;
const forecastEvery = 60000;
const day = 24 * 3600 * 1000;

export const title = ({ queue }) => `Queue ${queue}`;

export async function show(root, { queue }, signal) {
  const state = el('div');
  const shards = el('section');
  const forecast = el('section');
  root.append(actions(queue), state, forecast, shards);
  drawForecast(forecast, queue, signal);
  const again = setInterval(() => drawForecast(forecast, queue, signal), forecastEvery);
  signal.addEventListener('abort', () => clearInterval(again));
  await poll(root, every, signal, async () => {
    const [q, all] = await Promise.all([
      get(`queues/${name(queue)}`, null, signal), get(`queues/${name(queue)}/shards`, null, signal)]);
    replace(state, numbers(q), paused(queue, q.paused || []));
    replace(shards, el('h2', null, 'Shards'), shardTable(all));
    return q.age_s;
  });
}

function actions(queue) {
  return el('p.actions', null,
    el('a.button', { href: `#/messages?queue=${name(queue)}` }, 'Messages'),
    el('a.button', { href: `#/dead?queue=${name(queue)}` }, 'Dead letters'),
    el('a.button', { href: `#/recurring?queue=${name(queue)}` }, 'Recurring'),
    change('Pause …', () => pause(queue)));
}

function pause(queue) {
  return act({
    title: `Pause ${queue}`,
    effect: 'What is in flight is finished; nothing more is published until it is resumed. Messages wait and keep their due times; scheduling, cancelling and rescheduling go on. They will be late.',
    fields: [field('Topic', input('topic'), 'Only this one; empty for the whole queue.')],
    action: 'Pause', danger: true,
    does: ({ topic }) => post(`queues/${name(queue)}:pause`, topic ? { topic } : {}),
    done: (answer, { topic }) => [topic ? given(topic) : queue, ' is paused.'],
  });
}

function paused(queue, list) {
  return list.map((p) => el('p.calm', null, badge('warn', 'paused'), ' ', p.topic ? ['Topic ', given(p.topic)] : 'The whole queue', ', since ', when(p.since),
    ', by ', p.by ? given(p.by) : 'an unknown', ' ', resume(queue, p)));
}

function numbers(q) {
  return facts([
    ['Owner', q.owner && given(q.owner)],
    ['Contacts', q.contacts && given(q.contacts.join(', '))],
    ['Sink', el('a', { href: '#/sinks' }, q.sink)],
    ['Waiting', count(q.waiting)],
    ['Due now', `${count(q.due)}${q.oldest_due_age_s ? `, the oldest for ${duration(q.oldest_due_age_s)}` : ''}`],
    ['Next due', q.next_due_at && when(q.next_due_at)],
    ['Parked', count(q.parked)],
    ['In flight', count(q.in_flight)],
    ['Dead letters', count(q.dead)],
    ['Scheduled', rate(q.rates?.scheduled)],
    ['Published', rate(q.rates?.published)],
    ['Lateness', q.lateness && `p50 ${duration(q.lateness.p50_s)}, p99 ${duration(q.lateness.p99_s)} by the instance that was asked`],
    ['Budget', room(q.budget)],
    ['Redis’ memory', room(q.redis_memory)],
    ['Made', q.made_at && when(q.made_at)],
    ['Trouble', q.error],
  ]);
}

async function drawForecast(root, queue, signal) {
  const from = new Date();
  const to = new Date(from.getTime() + day);
  try {
    const f = await get(`queues/${name(queue)}/forecast`, { from: from.toISOString(), to: to.toISOString(), step: '15m' }, signal);
    const due = 'Messages that fall due, by quarters of an hour, next 24 hours';
    const said = (s) => `${clock(s.at)}: ${count(s.messages)} messages, about ${bytes(s.bytes)}`;
    replace(root, el('h2', null, 'Forecast'), bars(`${due}; as of ${clock(f.now, false)}`, due, f.steps, to, count, said),
      el('p', null, `Due now ${count(f.due)}, ${count(f.parked)} of them parked; after these hours ${count(f.later)}. A message has ${bytes(f.message_bytes.mean)} on average, ± ${bytes(f.message_bytes.error)}.`),
      el('details', null, el('summary', null, 'As a table'), table('Forecast', [
        { name: 'From', of: (s) => clock(s.at) },
        { name: 'Messages', number: true, of: (s) => count(s.messages) },
        { name: 'About', number: true, of: (s) => bytes(s.bytes) }], f.steps.filter((s) => s.messages), 'Nothing falls due.')));
  } catch (err) {
    if (!signal.aborted) replace(root, el('h2', null, 'Forecast'), el('p.error', null, err.message));
  }
}

function shardTable({ shards }) {
  return table('Shards', [
    { name: 'Shard', number: true, of: (s) => s.shard },
    { name: 'Holder', of: (s) => s.holder || badge('bad', 'none') },
    { name: 'Waiting', number: true, of: (s) => count(s.waiting) },
    { name: 'Due', number: true, of: (s) => count(s.due) },
    { name: 'Parked', number: true, of: (s) => count(s.parked) },
    { name: 'In flight', number: true, of: (s) => count(s.in_flight) },
    { name: 'Dead', number: true, of: (s) => count(s.dead) },
    { name: 'Oldest due', number: true, of: (s) => (s.oldest_due_age_s ? duration(s.oldest_due_age_s) : '–') },
    { name: 'Next due', of: (s) => (s.next_due_at ? away(s.next_due_at) : '–') },
    { name: 'Earlier layout', of: (s) => (s.drained ? '' : 'not drained yet') },
  ], shards);
}
