import { get } from '../api.js';
import { badge, el, replace, table } from '../dom.js';
import { poll } from '../fresh.js';
import { duration } from '../format.js';

const every = 2000;

export const title = () => 'Instances';

export async function show(root, query, signal) {
  const at = el('div');
  root.append(at);
  await poll(root, every, signal, async () => {
    const { instances } = await get('instances', null, signal);
    replace(at, table('Instances', [
      { name: 'Instance', of: (i) => i.instance },
      { name: 'State', of: (i) => (i.silent_s > 10 ? badge('bad', `silent for ${duration(i.silent_s)}`) : badge('good', 'alive')) },
      { name: 'Shards', of: (i) => Object.entries(i.shards).map(([queue, list]) => el('div', null, `${queue}: ${list ? list.join(', ') || 'none' : 'unknown'}`)) },
      { name: 'Boot', of: (i) => el('code', null, i.boot) },
    ], instances, 'No bridge is alive.'));
  });
}
