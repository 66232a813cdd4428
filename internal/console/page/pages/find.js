import { get, name } from '../api.js';
import { button, el, keepFocus, scroll } from '../dom.js';
import { head, row } from './messages.js';

export const title = ({ id }) => `Find ${id}`;

// show looks for the very id in each queue, then for ids that begin so.
export async function show(root, { id }, signal) {
  const { queues } = await get('queues', null, signal);
  await Promise.all(queues.map(async ({ name: queue }) => {
    const at = el('section', null, el('h2', null, queue));
    root.append(at);
    await look(at, queue, id, '', signal);
  }));
}

async function look(at, queue, id, cursor, signal) {
  const found = [];
  if (!cursor) {
    const exact = await get(`queues/${name(queue)}/messages/${name(id)}`, null, signal).catch((err) => {
      if (err.code !== 'not_found') throw err;
    });
    if (exact) found.push(exact);
  }
  const page = await get(`queues/${name(queue)}/messages`, { id_prefix: id, limit: 20, cursor }, signal);
  found.push(...page.messages.filter((m) => !found.some((f) => f.id === m.id && f.key === m.key)));
  at.append(found.length
    ? scroll(`Found in ${queue}`, head(), el('tbody', null, found.map((m) => row(queue, m))))
    : el('p.none', null, page.next_cursor ? 'Nothing found so far.' : 'Nothing found.'));
  if (page.next_cursor) {
    at.append(button('Look further', (event) => {
      event.target.remove();
      keepFocus();
      look(at, queue, id, page.next_cursor, signal);
    }));
  }
}
