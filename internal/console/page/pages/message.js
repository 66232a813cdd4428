import { del, get, name, post } from '../api.js';
import { act, whenFields, whenOf } from '../ask.js';
import { badge, button, change, el, facts, given, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { away, clock, count, duration } from '../format.js';
import { live, stale } from '../live.js';
import { when } from '../when.js';
import { stateBadge } from './messages.js';

const every = 2000;

export const title = ({ id }) => ['Message ', given(id)];

export async function show(root, { queue, id, key }, signal) {
  const path = `queues/${name(queue)}/messages/${name(id)}`;
  const shown = el('div');
  const body = payload(path, key); // It stays as it is while the rest is drawn anew.
  root.append(shown);
  let last = null;
  await poll(root, every, signal, async () => {
    const [m, q] = await Promise.all([
      get(path, { key }, signal).catch((err) => { if (!err.isMissing) throw err; }), get(`queues/${name(queue)}`, null, signal)]);
    if (!m) {
      body.remove();
      replace(shown, missing(q, id, key, last), last && about(queue, last));
      return;
    }
    last = m;
    replace(shown, story(m), why(m, q), actions(path, key, m), about(queue, m));
    if (ended.includes(m.state)) body.remove();
    else if (!body.isConnected) root.append(body);
  });
}

// missing says what it means that there is no such message: that depends on what the queue
// remembers.
function missing(q, id, key, last) {
  const { history } = q.rules;
  const remembers = history
    ? `The queue remembers the last ${count(history.count)} messages that ended, for ${duration(history.age_s)}: this one is not among them. So it ended before that, or was never scheduled.`
    : 'The queue keeps no history: whether it was published, cancelled or never scheduled, nobody can tell here. What was published, the consumers of its topic have. With queues.*.history set, the queue remembers from then on.';
  const lost = (q.losses || []).length ? ' Redis has lost messages of this queue, and this may have been one.' : '';
  return el('section', null, el('p.calm', null, badge('plain', 'not here'), ' ',
    last ? 'It has left: published, or cancelled. ' : 'There is no such message now. ', remembers, lost),
  el('p', null, key ? 'It was looked for under the key ' : 'It was looked for without a key. ', key ? [given(key), '. '] : '',
    el('a', { href: `#/find?${new URLSearchParams({ id })}` }, 'Look for the id in all queues and under every key')));
}

const past = { published: 'published', cancelled: 'cancelled', dropped: 'dropped', purged: 'purged', dead: 'died' };
const ended = ['published', 'cancelled', 'dropped', 'purged'];

// why answers why it has not arrived: all that holds it back, or will, the surest first.
function why(m, q) {
  if (ended.includes(m.state)) return null;
  const found = [];
  const add = (kind, word, ...text) => found.push([kind, word, text]);
  const due = Date.parse(m.due_at) <= Date.now();
  const sink = live.overview?.sinks.find((s) => s.name === q.sink);
  const off = stale();
  if (off) add('bad', 'unknown', `${off} What is said here may not be so any more.`);
  if (m.state === 'dead') add('bad', 'dead', 'It is in the dead letters, and stays there until it is put back: ', given(m.reason || 'the reason is not known'), '.');
  if (m.state === 'in_flight') add('plain', 'in flight', 'The bridge has handed it to the broker, or is about to, and waits for the acknowledgement. Where that lasts, the broker is slow or hangs.');
  if (m.state === 'scheduled' && !due) add('plain', 'not due', 'It is due ', when(m.due_at), ', and is never published before.');
  if (m.state !== 'dead') held(m, q, sink, due, add);
  const { after, then } = latest(m, q);
  if (m.state !== 'dead' && (then === 'dead' || then === 'drop')) {
    add(due ? 'warn' : 'plain', 'late policy', `If it is not published within ${duration(after)} of its due time, that is until ${clock(Date.parse(m.due_at) + 1000 * after)}, it `,
      then === 'dead' ? 'goes to the dead letters.' : 'is dropped, counted and logged.');
  }
  if (m.state === 'scheduled' && due && !found.some(([kind]) => kind !== 'plain')) {
    add('plain', 'due', m.attempt > 1 ? 'It was refused before, and waits to be tried again.' : 'Nothing that is known here holds it back: it should leave within seconds.');
  }
  return el('section', null, el('h2', null, 'Why it has not arrived'),
    el('ul.trouble', null, found.map(([kind, word, text]) => el('li', null, badge(kind, word), ' ', text))));
}

// held is what holds back a message that waits, or will when it is due.
function held(m, q, sink, due, add) {
  const pauses = q.paused || [];
  const mine = pauses.filter((p) => !p.topic || p.topic === m.topic);
  for (const p of mine) {
    add('warn', 'paused', p.topic ? ['Topic ', given(p.topic)] : `Queue ${q.name}`, ' is paused since ', when(p.since), ', by ', p.by ? given(p.by) : 'an unknown',
      due ? '. It is published when that is resumed.' : '. Unless that is resumed before, it will be late.');
  }
  if (m.state === 'parked' && !(m.reason === 'paused' && mine.length)) add(...parkedFor(m, q));
  if (sink && !sink.up) add('bad', 'sink down', `The sink ${q.sink} is down`, sink.since ? [' since ', when(sink.since)] : '', ': ', given(sink.detail), '. Nothing is published to it meanwhile.');
  if (q.held < q.shards) add('bad', 'no holder', `${q.shards - q.held} of ${q.shards} shards have no holder: if it is in one of them, no bridge publishes it.`);
  if (due && q.rules.rate && m.state === 'scheduled') {
    add('warn', 'rate', `The queue publishes at most ${count(q.rules.rate)} messages a second, over all shards, and ${count(q.due)} are due: they leave in due order.`);
  }
  if (due && m.attempt > 1 && m.reason) add('warn', 'refused', `It was tried ${count(m.attempt - 1)} times, and the broker has said: `, given(m.reason));
}

// parkedFor says why its route keeps it.
function parkedFor(m, q) {
  const route = m.route ? [' ', given(m.route)] : '';
  const rate = q.rules.topic_rates?.[m.topic];
  if (m.reason === 'rate') {
    return ['warn', 'rate', 'The rate of its topic holds it back', rate ? `: at most ${count(rate)} messages a second` : '', '. It leaves in due order.'];
  }
  if (m.reason === 'paused') return ['warn', 'paused', 'Its route', route, ' was paused, and is about to be let go on.'];
  return ['bad', 'parked', 'Its route', route, ' is unavailable: ', given(m.reason || 'the cause is not known'), '. It is tried again and again, and leaves when the route is there.'];
}

// latest is how late it may be: by itself, or by the queue's rule.
function latest(m, q) {
  const own = /^(publish|dead|drop) (?:(\d+)h)?(?:(\d+)m)?(?:([\d.]+)s)?$/.exec(m.headers?.['delay-late'] || '');
  if (own) return { then: own[1], after: Number(own[2] || 0) * 3600 + Number(own[3] || 0) * 60 + Number(own[4] || 0) };
  return { then: q.rules.late?.then, after: q.rules.late?.after_s };
}

// story tells in sentences what has happened and what comes next.
function story(m) {
  const told = [];
  if (m.end && m.end.state !== m.state) told.push([`Before, ${past[m.end.state]}`, m.end.at, m.end.place || m.end.reason || '']);
  if (m.scheduled_at) told.push(['Scheduled', m.scheduled_at, '']);
  if (m.attempt > 1) told.push([`Tried ${m.attempt - 1} times`, null, m.state === 'dead' ? '' : m.reason || '']);
  if (m.maybe_published) told.push(['Maybe published', null, 'A copy may be at the broker: its answer was lost.']);
  const next = {
    scheduled: [Date.parse(m.due_at) > Date.now() ? 'Will be published' : 'Due, and not published yet', m.due_at, m.attempt > 1 ? '' : m.reason || ''],
    parked: ['Parked since its route is unavailable', m.due_at, [m.route, m.reason].filter(Boolean).join(': ')],
    in_flight: ['With the broker now', m.due_at, 'It is published when the broker acknowledges it.'],
    dead: ['Died', m.end?.at, m.reason],
    published: [['Published to ', given(m.topic)], m.end?.at, [m.end?.place, `attempt ${m.attempt}`].filter(Boolean).join(', ')],
    cancelled: ['Cancelled', m.end?.at, m.reason || ''],
    dropped: ['Dropped', m.end?.at, m.reason || ''],
    purged: ['Purged from the dead letters', m.end?.at, m.reason || ''],
  }[m.state];
  if (next) told.push(next);
  return el('section', null, el('p.calm', null, stateBadge(m), m.due_at && m.state === 'scheduled' ? ` due ${away(m.due_at)}` : ''),
    el('ol.story', null, told.map(([what, at, because]) => el('li', null, el('b', null, what), at ? [' ', when(at)] : '', because ? el('small', null, ' ', given(because)) : ''))));
}

function actions(path, key, m) {
  const moved = ({ maybe_published: maybe }) => (maybe ? ' A copy may have been published before.' : '');
  if (ended.includes(m.state)) return null;
  return el('p.actions', null,
    change('Publish now …', () => act({
      title: ['Publish ', given(m.id), ' now'], action: 'Publish now',
      effect: m.state === 'dead' ? 'It leaves the dead letters and is tried again at once.' : `It is due at once, and not ${m.due_at ? away(m.due_at) : 'later'}.`,
      does: () => post(`${path}:publish-now`, {}, { key }), done: (answer) => [given(m.id), ` is due now.${moved(answer)}`],
    })),
    change('Reschedule …', () => act({
      title: ['Reschedule ', given(m.id)], action: 'Reschedule', effect: 'It is published at the time that you give, and no earlier.', fields: whenFields(),
      does: (values) => post(`${path}:reschedule`, whenOf(values), { key }), done: (answer) => [given(m.id), ` is rescheduled.${moved(answer)}`],
    })),
    change('Cancel …', () => act({
      title: ['Cancel ', given(m.id)], action: 'Cancel the message', danger: true, effect: 'It is removed and will not be published. This cannot be undone.',
      does: () => del(path, { key }), done: (answer) => [given(m.id), ` is cancelled.${moved(answer)}`],
    })));
}

function about(queue, m) {
  const headers = Object.entries(m.headers || {});
  return el('section', null, el('h2', null, 'What it is'), facts([
    ['Queue', el('a', { href: `#/queue?queue=${name(queue)}` }, queue)],
    ['Id', given(m.id)], ['Key', given(m.key)], ['Topic', given(m.topic)], ['Due', when(m.due_at)],
    ['Tags', (m.tags || []).map((tag) => el('a.badge.plain', { href: `#/messages?${new URLSearchParams({ queue, tag })}` }, given(tag))).flatMap((a) => [a, ' '])],
    ['Attempt', String(m.attempt)], ['Route', given(m.route)],
  ].filter(([, value]) => !Array.isArray(value) || value.length)),
  ended.includes(m.state) ? null : el('h3', null, 'Headers'),
  ended.includes(m.state) ? null : table('Headers', [{ name: 'Name', of: ([header]) => given(header) }, { name: 'Value', of: ([, value]) => given(value) }], headers, 'It has none of the producer’s.'));
}

// payload is shown on demand only: it may be large, or nobody else's affair.
function payload(path, key) {
  const section = el('section', null, el('h3', null, 'Body'), button('Show the body', async (event) => {
    try {
      const m = await get(path, { key, body: 1 });
      const text = m.body ?? (m.body_base64 && `base64: ${m.body_base64}`);
      const shown = text === undefined
        ? el('p.calm', { tabindex: -1 }, `It is encrypted with the key ${m.headers['delay-sealed']}, and not shown here.`)
        : el('pre', { tabindex: 0, role: 'region', 'aria-label': 'Body' }, text);
      event.target.replaceWith(shown);
      shown.focus();
    } catch (err) {
      section.append(el('p.error', null, err.message));
    }
  }));
  return section;
}
