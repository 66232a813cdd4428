// Questions: what an action will do, and what it needs to know.
import { post } from './api.js';
import { button, el, field, input, keepFocus, note } from './dom.js';

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
    document.body.append(dialog);
    dialog.showModal();
  });
}

// act asks, does, and tells what came of it; done(answer) is the text. It reports
// whether it was done.
export async function act({ title, effect, fields = [], action, danger, does, done }) {
  const given = await ask(title, [el('p', null, effect), fields], action, danger ? 'danger' : 'primary');
  if (!given) return false;
  try {
    note(done(await does(given), given));
    return true;
  } catch (err) {
    note(`${title}: ${err.message}`, true);
    return false;
  }
}

// whenFields are the two ways to give an instant, and whenOf reads them.
export function whenFields() {
  return [
    field('In', input('in', { placeholder: '30m' }), 'From now by Redis’ clock: 90s, 30m, 2d.'),
    field('Or at', input('at', { type: 'datetime-local', step: 1 }), 'By the clock of this computer.'),
  ];
}

export function whenOf({ in: delay, at }) {
  return at ? { at: new Date(at).toISOString() } : { in: delay.trim() };
}

// startJob does something to all that a filter matches. A dry run says first how
// many these are.
export async function startJob({ queue, path, filter, title, verb, fields = [], extra = () => ({}), danger }) {
  const target = `queues/${encodeURIComponent(queue)}/${path}`;
  return act({
    title,
    effect: `Every message that matches is ${verb}, one after the other. This goes on when the page is closed; it can be stopped under Jobs.`,
    fields: [fields,
      field('Rate', input('rate', { type: 'number', min: 1, placeholder: 'as fast as it goes' }), 'Messages a second.'),
      el('label.choice', null, input('dry_run', { type: 'checkbox', checked: true }), ' Only count what matches')],
    action: title, danger,
    does: (given) => post(target, {
      filter, ...extra(given), ...(given.rate ? { rate: Number(given.rate) } : {}), dry_run: given.dry_run !== undefined,
    }),
    done: ({ job }) => {
      location.hash = `#/jobs?job=${encodeURIComponent(job)}`;
      return `Job ${job} has begun.`;
    },
  });
}
