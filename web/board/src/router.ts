// Addresses behind the `#`: they need nothing of the server, so the page works under any path.

import { useSyncExternalStore } from "react";
import { type BaseLocationHook, useLocation, useSearch } from "wouter";

function subscribe(onChange: () => void): () => void {
  addEventListener("hashchange", onChange);
  return () => removeEventListener("hashchange", onChange);
}

const here = (): string => location.hash.replace(/^#?\/?/, "/");
const pathOf = (hash: string): string => hash.split("?", 1)[0] ?? "/";
const queryOf = (hash: string): string => hash.slice(pathOf(hash).length + 1);

export function go(to: string, { replace = false } = {}): void {
  if (!replace) {
    location.hash = to;
    return;
  }
  history.replaceState(history.state, "", `#${to}`);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

export const useHash: BaseLocationHook = Object.assign(
  (): [string, typeof go] => [useSyncExternalStore(subscribe, () => pathOf(here())), go],
  { hrefs: (href: string) => `#${href}` },
);

export const useHashSearch = (): string => useSyncExternalStore(subscribe, () => queryOf(here()));

/** One field of the query, and how to set it; an empty text takes it away. */
export function useParam(name: string): [string, (value: string) => void] {
  const [path] = useLocation();
  const search = useSearch();
  const set = (value: string) => {
    const fields = new URLSearchParams(search);
    if (value === "") fields.delete(name);
    else fields.set(name, value);
    const text = fields.toString();
    go(text === "" ? path : `${path}?${text}`, { replace: true });
  };
  return [new URLSearchParams(search).get(name) ?? "", set];
}
