// Another payload for a task: for itself, once more, or for a new one like it.

import { exact } from "@outlast/client";
import { useState } from "react";
import { client, type Task } from "../api.ts";
import { go } from "../router.ts";
import { act, Dialog } from "./act.tsx";

type Payload = Record<string, unknown>;

export function EditPayload({ task, how, close }: { task: Task; how: "retry" | "new"; close: () => void }) {
  const [text, write] = useState(exact.stringify(task.payload, 2));
  const [busy, setBusy] = useState(false);
  const payload = parsed(text);
  const run = async () => {
    if (typeof payload === "string") return;
    setBusy(true);
    const done = await act(() => (how === "retry" ? again(task, payload) : anew(task, payload)));
    setBusy(false);
    if (done) close();
  };
  return (
    <Dialog title={how === "retry" ? "Redrive with this payload" : "Run a new task like it"} close={close}>
      <label>Payload
        <textarea className="code" rows={12} value={text} spellCheck={false} onChange={(event) => write(event.target.value)} />
      </label>
      {typeof payload === "string" ? <p className="wrong">{payload}</p> : null}
      <footer>
        <button type="button" onClick={close}>Not now</button>
        <button type="button" className="primary" disabled={busy || typeof payload === "string"} onClick={() => void run()}>
          {how === "retry" ? "Redrive" : "Run it"}
        </button>
      </footer>
    </Dialog>
  );
}

async function again(task: Task, payload: Payload): Promise<string> {
  await client.retry(task.id, payload);
  return "It runs again, with the new payload.";
}

async function anew(task: Task, payload: Payload): Promise<string> {
  const { queue, priority, tags, session_id, user_id } = task;
  const made = await client.enqueue(task.type, payload, { queue, priority, tags, session_id, user_id, parent_id: task.id });
  go(`/tasks/${made.id}`);
  return "This is the new one; the other is its parent.";
}

/** The object that a text says, or why it says none. */
export function parsed(text: string): Payload | string {
  try {
    const value: unknown = exact.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Payload) : "A payload is an object: {…}.";
  } catch (error) {
    return `This is no JSON: ${(error as Error).message}`;
  }
}
