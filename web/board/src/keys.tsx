// The keyboard: one letter for what one does often. `?` tells them all.

import { type ReactNode, useEffect, useState } from "react";
import { go } from "./router.ts";
import { Dialog } from "./ui/act.tsx";

const PLACES: Record<string, readonly [string, string]> = {
  o: ["/", "Overview"], t: ["/tasks", "Tasks"], f: ["/failures", "Failures"], q: ["/queues", "Queues"],
  l: ["/limits", "Limits"], w: ["/workers", "Workers"], a: ["/approvals", "Approvals"], y: ["/types", "Types"],
  x: ["/workflows", "Workflows"], c: ["/schedules", "Schedules"], s: ["/sessions", "Sessions"], u: ["/usage", "Usage"],
  h: ["/webhooks", "Webhooks"], ",": ["/settings", "Settings"],
};
const HELP: readonly (readonly [string, string])[] = [
  ["/", "filter"],
  ["j  k", "next, previous row"],
  ["Enter", "open it"],
  ["x", "choose it"],
  ["Escape", "leave a field, close a dialog"],
  ["?", "this list"],
  ...Object.entries(PLACES).map(([key, [, name]]) => [`g ${key}`, `go to ${name}`] as const),
];

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.closest("input, textarea, select, dialog, [contenteditable]") !== null;
}

/** Listens for as long as the shell is there; what it gives is the help, when it is asked for. */
export function useKeys(): ReactNode {
  const [help, setHelp] = useState(false);
  useEffect(() => {
    let before = "";
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === "Escape" && event.target instanceof HTMLElement && isTyping(event.target)) event.target.blur();
      if (isTyping(event.target)) return;
      const place = before === "g" ? PLACES[event.key] : undefined;
      before = event.key;
      if (place) return go(place[0]);
      if (event.key === "?") return setHelp(true);
      if (event.key === "/") {
        event.preventDefault();
        document.querySelector<HTMLElement>("[data-filter]")?.focus();
      }
      if (event.key === "x") document.activeElement?.closest("tr")?.querySelector<HTMLInputElement>("input[type=checkbox]")?.click();
      if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
  if (!help) return null;
  return (
    <Dialog title="Keys" close={() => setHelp(false)}>
      <dl className="facts keys">{HELP.map(([key, does]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{does}</dd></div>)}</dl>
    </Dialog>
  );
}

/** To the link of the next row, or the one before. */
function step(by: number): void {
  const links = [...document.querySelectorAll<HTMLElement>("main tbody a.id")];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[at < 0 ? 0 : Math.min(Math.max(at + by, 0), links.length - 1)]?.focus();
}
