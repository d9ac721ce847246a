// Doing something: the button that waits, the question before, and the word after.

import { type ReactNode, useEffect, useLayoutEffect, useRef, useState, useSyncExternalStore } from "react";
import { messageOf } from "../api.ts";
import { queries } from "../state/reads.ts";

interface Word {
  id: number;
  text: ReactNode;
  isBad: boolean;
}

let words: readonly Word[] = [];
let count = 0;
const listeners = new Set<() => void>();
const STAYS_MS = 6_000;

/** A word to the user, for some seconds; what went wrong stays until it is closed. */
export function say(text: ReactNode, isBad = false): void {
  const id = ++count;
  words = [...words.slice(-2), { id, text, isBad }];
  for (const listener of listeners) listener();
  if (!isBad) setTimeout(() => unsay(id), STAYS_MS);
}

function unsay(id: number): void {
  words = words.filter((word) => word.id !== id);
  for (const listener of listeners) listener();
}

export function Words() {
  const told = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => words,
  );
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    place.current?.hidePopover(); // and again: above a dialog that was opened meanwhile
    if (told.length > 0) place.current?.showPopover();
  }, [told]);
  return (
    <div className="words" role="status" popover="manual" ref={place}>
      {told.map(({ id, text, isBad }) => (
        <p key={id} className={isBad ? "bad" : ""}>
          <span>{text}</span>
          <button type="button" className="quiet" aria-label="Close" onClick={() => unsay(id)}>✕</button>
        </p>
      ))}
    </div>
  );
}

/** Does it, says how it went, and has the page look again. */
export async function act(work: () => Promise<ReactNode>): Promise<boolean> {
  try {
    const told = await work();
    if (told) say(told);
    return true;
  } catch (error) {
    say(messageOf(error), true);
    return false;
  } finally {
    void queries.invalidateQueries();
  }
}

interface Doing {
  children: ReactNode;
  work: () => Promise<ReactNode>;
  /** Asked before it is done. */
  sure?: ReactNode;
  tone?: "" | "primary" | "danger";
  label?: string;
}

export function Act({ children, work, sure, tone = "", label }: Doing) {
  const [busy, setBusy] = useState(false);
  const [asking, setAsking] = useState(false);
  const run = async () => {
    setBusy(true);
    await act(work);
    setBusy(false);
    setAsking(false);
  };
  return (
    <>
      <button type="button" className={tone} disabled={busy} aria-label={label} onClick={() => (sure ? setAsking(true) : void run())}>
        {children}
      </button>
      {asking ? (
        <Dialog title={label ?? children} close={() => setAsking(false)}>
          <p>{sure}</p>
          <footer>
            <button type="button" onClick={() => setAsking(false)}>Not now</button>
            <button type="button" className={tone || "primary"} disabled={busy} onClick={() => void run()}>{children}</button>
          </footer>
        </Dialog>
      ) : null}
    </>
  );
}

/** A native dialog: the browser keeps the focus inside, closes it on Escape, and then puts the focus
 * back where it was. */
export function Dialog({ title, close, children }: { title: ReactNode; close: () => void; children: ReactNode }) {
  const ref = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = ref.current;
    dialog?.showModal();
    return () => dialog?.close(); // while it is still there: who is taken away gives no focus back
  }, []);
  return (
    <dialog ref={ref} onClose={close} aria-labelledby="dialog-title">
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}
