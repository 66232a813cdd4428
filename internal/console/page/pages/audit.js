import { get } from '../api.js';
import { button, el, given, note, replace, scroll } from '../dom.js';
import { asOf } from '../fresh.js';
import { when } from '../when.js';

export const title = () => 'Audit';

export async function show(root, query, signal) {
  const { queues } = await get('queues', null, signal);
  asOf(root, signal);
  for (const { name } of queues) {
    const at = el('section', null, el('h2', null, name));
    root.append(at);
    await audit(at, name, signal);
  }
}

async function audit(at, queue, signal) {
  const body = el('tbody');
  const more = el('p.actions');
  at.append(scroll(`What was changed in ${queue}, newest first`,
    el('thead', null, el('tr', null, ['When', 'Who', 'From', 'Via', 'Action', 'What', 'Answer'].map((text) => el('th', { scope: 'col' }, text)))), body), more);
  const page = async (cursor) => {
    const answer = await get('audit', { queue, cursor }, signal);
    body.append(...answer.changes.map((c) => el('tr', null, [
      ['When', when(c.at)], ['Who', given(c.who)], ['From', given(c.from)], ['Via', c.via], ['Action', c.action], ['What', [given(c.what), c.key && [' of ', given(c.key)], c.topic && [' to ', given(c.topic)]]], ['Answer', c.answer],
    ].map(([label, content]) => el('td', { 'data-name': label }, content)))));
    replace(more, answer.next_cursor ? button('More', () => page(answer.next_cursor).catch((err) => note(err.message, true))) : '');
  };
  await page('');
}
