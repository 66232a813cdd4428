// Questions: what an action will do, and what it needs to know.
import { get, name, post } from './api.js';
import { button, el, facts, field, given, input, keepFocus, note, replace } from './dom.js';
import { count, instant, zone } from './format.js';

// ask shows a dialog with the parts and resolves with the values of its fields, or
// null where it was cancelled. A browser keeps the focus inside, and gives it back to what
// had it; Escape closes it.
export function ask(title, parts, action, kind = '') {
  return new Promise((resolve) => {
    const cancel = button('Cancel', () => dialog.close());
    const form = el('form', { method: 'dialog' },
      el('h2', { id: 'question' }, title), parts,
      el('div.actions', null, cancel, el('button', { type: 'submit', value: 'yes', class: kind }, action)));
    const dialog = el('dialog', { 'aria-labelledby': 'question' }, form);
    dialog.addEventListener('close', () => {
      resolve(dialog.returnValue === 'yes' ? Object.fromEntries(new FormData(form)) : null);
      dialog.remove();
      keepFocus();
    });
    // What cannot be undone, or stops something, is not done by Enter in a field.
    const stay = (event) => {
      const does = form.querySelector('button[type=submit]');
      if (event.key === 'Enter' && event.target.localName === 'input' && does.classList.contains('danger')) event.preventDefault();
    };
    form.addEventListener('keydown', stay);
    form.addEventListener('keypress', stay);
    document.body.append(dialog);
    dialog.showModal();
  });
}

// act asks, does, and tells what came of it; done(answer) is the text. It reports
// whether it was done.
export async function act({ title, effect, fields = [], action, danger, does, done }) {
  const values = await ask(title, [Array.isArray(effect) ? effect : el('p', null, effect), fields], action, danger ? 'danger' : 'primary');
  if (!values) return false;
  try {
    note(done(await does(values), values));
    return true;
  } catch (err) {
    note([title, `: ${err.message}`], true);
    return false;
  }
}

// whenFields are the two ways to give an instant, and whenOf reads them.
export function whenFields() {
  return [
    field('In', input('in', { placeholder: '30m' }), 'From now by Redis’ clock: 90s, 30m, 2d.'),
    field('Or at', input('at', { type: 'datetime-local', step: 1 }), `In the zone shown: ${zone()}.`),
  ];
}

export function whenOf({ in: delay, at }) {
  return at ? { at: instant(at) } : { in: delay.trim() };
}

const sampled = 5; // ids that a question shows
const mostPages = 10; // of a thousand, that are counted

// what names what a filter says, in the words of the form.
const what = {
  state: 'State', topic: 'Topic', key: 'Key', tag: 'Tag', id_prefix: 'Id begins with', reason: 'Reason', reason_contains: 'Reason has',
  due_from: 'Due from', due_to: 'Due before',
};

// counted fills a part of a question: how many messages match, and some of them. It
// returns with the count as text.
async function counted(at, queue, filter, signal) {
  const some = [];
  let n = 0;
  let cursor = '';
  for (let page = 0; page < mostPages; page++) {
    const answer = await get(`queues/${name(queue)}/messages`, { ...filter, limit: 1000, cursor }, signal);
    some.push(...answer.messages.slice(0, sampled - some.length));
    n += answer.messages.length;
    cursor = answer.next_cursor;
    const text = `${cursor ? 'more than ' : ''}${count(n)}`;
    replace(at, el('p', { role: 'status' }, el('b', null, text), n === 1 ? ' message matches now' : ' messages match now',
      cursor && page + 1 < mostPages ? ', counting …' : some.length ? ', among them:' : '.'),
    some.length ? el('ul.sample', null, some.map((m) => el('li', null, given(m.id), m.key ? [' of ', given(m.key)] : '', el('small', null, ' to ', given(m.topic))))) : '');
    if (!cursor) break;
  }
  return `${cursor ? 'more than ' : ''}${count(n)}`;
}

// startJob does something to all that a filter matches. The question says what that is: the
// queue, the filter, how many match, and some of these. A dry run changes nothing.
export async function startJob({ queue, path, filter, title, verb, effect, of = 'messages', fields = [], extra = () => ({}), danger }) {
  const sample = el('div.counted', null, el('p.none', null, 'Counting …'));
  const closed = new AbortController();
  let many = '';
  const dry = input('dry_run', { type: 'checkbox', checked: true });
  const label = () => (dry.checked ? ['Only count them', 'primary'] : [`${verb} ${many || 'all'} ${of}`, danger ? 'danger' : 'primary']);
  const question = act({
    title, effect: [facts([['Queue', given(queue)], ...Object.entries(filter).filter(([field]) => field !== 'reason_contains' || !filter.reason)
      .map(([field, value]) => [what[field] || field, given(value)])]), sample,
    el('p', null, effect, ' One after the other; this goes on when the page is closed, and can be stopped under Jobs.')],
    fields: [fields,
      field('Rate', input('rate', { type: 'number', min: 1, placeholder: 'as fast as it goes' }), 'Messages a second.'),
      el('label.choice', null, dry, ' Only count what matches, change nothing')],
    action: label()[0], danger: false,
    does: (values) => post(`queues/${name(queue)}/${path}`, {
      filter, ...extra(values), ...(values.rate ? { rate: Number(values.rate) } : {}), dry_run: values.dry_run !== undefined,
    }),
    done: ({ job }) => {
      location.hash = `#/jobs?job=${encodeURIComponent(job)}`;
      return `Job ${job} has begun.`;
    },
  });
  const says = dry.form.querySelector('button[type=submit]');
  const tell = () => { [says.textContent, says.className] = label(); };
  dry.addEventListener('change', tell);
  counted(sample, queue, filter, closed.signal).then((n) => { many = n; tell(); }).catch((err) => {
    if (!closed.signal.aborted) replace(sample, el('p.error', null, `How many match is not known: ${err.message}`));
  });
  try {
    return await question;
  } finally {
    closed.abort();
  }
}
