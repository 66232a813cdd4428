import { get, name } from '../api.js';
import { button, el, given, keepFocus, replace, scroll } from '../dom.js';
import { asOf } from '../fresh.js';
import { count } from '../format.js';
import { live } from '../live.js';
import { head, row } from './messages.js';

const enough = 100; // found in a queue, until somebody asks for more

export const title = ({ id }) => ['Find ', given(id)];

// show looks for the very id in each queue, then for ids that begin so, then for the key.
export async function show(root, { id }, signal) {
  const { queues } = await get('queues', null, signal);
  asOf(root, signal);
  await Promise.all(queues.map(async ({ name: queue }) => {
    const at = el('section', null, el('h2', null, queue));
    root.append(at);
    try {
      await new Search(at, queue, id, signal).run();
    } catch (err) {
      if (!signal.aborted) at.append(el('p.error', { role: 'alert' }, `It is not known whether there is more: ${err.message}`));
    }
  }));
}

// Search goes through a queue until all is looked at, and tells how far it is.
class Search {
  constructor(at, queue, id, signal) {
    Object.assign(this, { queue, id, signal, found: 0, seen: new Set(), looked: 0, body: el('tbody'), told: el('p.none'), list: el('div') });
    at.append(this.told, this.list);
  }

  async run() {
    this.tell('Looking …');
    const exact = await get(`queues/${name(this.queue)}/messages/${name(this.id)}`, null, this.signal).catch((err) => {
      if (!err.isMissing && err.code !== 'forbidden') throw err;
    });
    if (exact) this.add([exact]);
    for (const filter of [{ id_prefix: this.id }, { key: this.id }]) await this.walk(filter);
    const all = `all ${count(this.looked)} messages were looked at, by id and by key.`;
    this.tell(this.found ? `${count(this.found)} found; ${all}` : `Nothing found; ${all}`);
  }

  async walk(filter) {
    let looked = 0;
    for (let cursor = ''; ;) {
      const page = await get(`queues/${name(this.queue)}/messages`, { ...filter, limit: 50, cursor }, this.signal);
      looked += page.looked;
      this.looked = Math.max(this.looked, looked);
      this.add(page.messages);
      cursor = page.next_cursor;
      if (!cursor) return;
      const q = live.overview?.queues.find((one) => one.name === this.queue);
      const all = q?.waiting === undefined ? '' : ` of about ${count(q.waiting + q.in_flight + q.dead)}`;
      if (this.found >= this.most) await this.asked();
      this.tell(`${count(this.found)} found so far; looked at ${count(looked)}${all} by ${filter.key ? 'key' : 'id'} …`);
    }
  }

  most = enough;

  // asked waits until somebody wants more than is shown.
  asked() {
    return new Promise((resolve) => {
      this.tell(`${count(this.found)} found so far. `, button('Look further', () => {
        this.most += enough;
        keepFocus();
        resolve();
      }));
    });
  }

  add(messages) {
    for (const m of messages) {
      const identity = JSON.stringify([m.id, m.key]);
      if (this.seen.has(identity)) continue;
      this.seen.add(identity);
      this.found++;
      this.body.append(row(this.queue, m));
    }
    if (this.found && !this.list.firstChild) this.list.append(scroll(`Found in ${this.queue}`, head(), this.body));
  }

  tell(...text) {
    replace(this.told, ...text);
  }
}
