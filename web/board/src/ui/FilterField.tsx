// The filter, with what could come next. Enter takes an offer or looks; the arrows choose.

import { type KeyboardEvent, useEffect, useId, useRef, useState } from "react";
import { complete, type Completion, take } from "../state/filter.ts";
import { useQueues, useTypes } from "../state/reads.ts";

export function FilterField({ filter, set }: { filter: string; set: (filter: string) => void }) {
  const [text, write] = useState(filter);
  const [caret, setCaret] = useState(filter.length);
  const [open, setOpen] = useState(false);
  const [at, setAt] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const list = useId();
  const types = useTypes();
  const queues = useQueues();
  useEffect(() => write(filter), [filter]);
  const known = {
    types: (types.data ?? []).map((one) => one.type),
    queues: Object.keys(queues.data?.by_queue ?? {}),
  };
  const { from, offers } = open ? complete(text, caret, known) : { from: 0, offers: [] };

  const choose = (offer: Completion) => {
    const taken = take(text, caret, from, offer);
    write(taken.text);
    setCaret(taken.caret);
    setAt(-1);
    field.current?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const offer = offers[at];
    if (event.key === "Enter") {
      event.preventDefault();
      if (offer) return choose(offer);
      setOpen(false);
      set(text.trim());
    } else if (event.key === "Tab" && offers[0] && !event.shiftKey && text !== "") {
      event.preventDefault();
      choose(offer ?? offers[0]);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
      setAt((now) => Math.min(Math.max(now + (event.key === "ArrowDown" ? 1 : -1), -1), offers.length - 1));
    } else if (event.key === "Escape") {
      setOpen(false);
    }
  };
  return (
    <form className="filter" role="search" onSubmit={(event) => { event.preventDefault(); set(text.trim()); }}>
      <input
        ref={field} data-filter type="text" value={text} spellCheck={false} autoComplete="off" autoCapitalize="off"
        role="combobox" aria-label="Filter" aria-expanded={offers.length > 0} aria-controls={list} aria-autocomplete="list"
        aria-activedescendant={at >= 0 && offers[at] ? `${list}-${at}` : undefined}
        placeholder='type:summarize status:dead age>1h payload.user:ada "a text"'
        onChange={(event) => { write(event.target.value); setCaret(event.target.selectionStart ?? event.target.value.length); setOpen(true); setAt(-1); }}
        onSelect={(event) => setCaret(event.currentTarget.selectionStart ?? 0)}
        onFocus={() => setOpen(true)} onBlur={() => setOpen(false)} onKeyDown={onKey}
      />
      {text ? <button type="button" className="quiet" aria-label="Clear the filter" onClick={() => { write(""); set(""); }}>✕</button> : null}
      <button type="submit" className="primary">Find</button>
      <ul id={list} role="listbox" aria-label="What could come next" hidden={offers.length === 0}>
        {offers.map((offer, n) => (
          <li key={offer.text} id={`${list}-${n}`} role="option" aria-selected={n === at}
            onMouseDown={(event) => { event.preventDefault(); choose(offer); }}>
            <code>{offer.text}</code> <span className="soft">{offer.means}</span>
          </li>
        ))}
      </ul>
    </form>
  );
}
