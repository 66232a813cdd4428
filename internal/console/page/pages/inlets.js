import { get } from '../api.js';
import { badge, el, facts, given, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { count, rate } from '../format.js';
import { when } from '../when.js';

const every = 2000;
const kinds = { kafka: 'Kafka topic', rabbitmq: 'RabbitMQ queue', nats: 'NATS subject' };
const causes = {
  broker: 'The broker is away, or does not let it consume', redis: 'Redis is away', replies: 'Answers cannot be published', dead: 'What is refused cannot be published',
};

export const title = () => 'Inlets';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  await poll(root, every, signal, async () => {
    const seen = await get('inlets', null, signal);
    replace(at, el('p.age', null, 'As ', given(seen.instance), ' sees them; counted since ', when(seen.began_at), '. Other instances have figures of their own.'),
      seen.inlets.length ? seen.inlets.map(one) : el('p.none', null, 'There are none for queues that you may see.'));
  });
}

const states = { consuming: 'good', waiting: 'warn', disconnected: 'bad' };

function one(i) {
  return el('section', null, el('h2', null, i.name, ' ', badge(states[i.state], i.state)),
    facts([
      ['So since', when(i.since)],
      ['Why', i.cause && [causes[i.cause], i.reason && [': ', given(i.reason)]]],
      ['Waiting at the broker', i.behind === undefined ? 'unknown' : [count(i.behind), ' ', el('small', null, 'told ', when(i.behind_at))]],
      ['In hand', count(i.in_hand)],
      ['Done', i.rate ? rate(i.rate.done) : 'unknown'],
      ['Could not be done at once', count(i.repeated)],
      ['From', [`${kinds[i.type]} `, given(i.from), i.stream && [' of stream ', given(i.stream)], ` at sink ${i.sink}`]],
      ['For', el('a', { href: `#/queue?${new URLSearchParams({ queue: i.queue })}` }, `queue ${i.queue}`)],
      ['Answers', i.replies ? given(i.replies) : 'none'],
      ['Refused go to', i.dead ? given(i.dead) : 'nowhere: they are dropped'],
    ]),
    i.refused ? el('p', null, el('b', null, 'Last refused: '), refused(i.refused)) : null,
    table(`Results of ${i.name}`, [
      { name: 'Operation', of: (r) => r.op || 'unknown' },
      { name: 'Result', of: (r) => r.result },
      { name: 'Messages', number: true, of: (r) => count(r.count) },
    ], i.results, 'This instance has done none yet.'));
}

function refused(r) {
  return [when(r.at), ', ', given(r.position || r.id) || 'without an id', ': ', given(r.reason)];
}
