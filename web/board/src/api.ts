// The server that the page is from, whatever path it is served under.

import { ApiError, Client, type components, exact, type Task } from "@outlast/client";

export type Shapes = components["schemas"];
export type { Task };
export type Me = Shapes["LoggedIn"];
export type Right = "look" | "enqueue" | "act" | "inspect" | "operate" | "admin";

export const base = new URL(".", location.href).href.replace(/\/$/, "");
export const client = new Client({ url: base, json: exact });
export const { link } = client;

const RIGHTS: Record<string, readonly Right[]> = {
  session: ["look", "enqueue", "act"],
  client: ["look", "enqueue", "act", "inspect"],
  worker: ["inspect"],
  operator: ["look", "enqueue", "act", "inspect", "operate"],
  admin: ["look", "enqueue", "act", "inspect", "operate", "admin"],
};

/** As the server decides it; what one may not do has no button. */
export function may(me: Me, right: Right): boolean {
  const reads = right === "look" || right === "inspect";
  return (RIGHTS[me.role] ?? []).includes(right) && (reads || !me.read_only);
}

export function messageOf(error: unknown): string {
  if (error instanceof ApiError) return error.message;
  return error instanceof Error ? error.message : String(error);
}

export function isRefused(error: unknown, status: number): boolean {
  return error instanceof ApiError && error.status === status;
}
