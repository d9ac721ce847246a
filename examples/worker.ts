// A worker in TypeScript, with nothing but fetch. It serves the type "shout", in the queue "ts":
//   OUTLAST_SERVER=http://127.0.0.1:5278 OUTLAST_KEY=olk_… node worker.ts   (Node 22.18 or later)
import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

type Task = { id: string; type: string; payload: any; attempt: number };
type Context = { signal: AbortSignal; emit: (chunk: unknown) => Promise<void> };

const handlers: Record<string, (task: Task, ctx: Context) => Promise<unknown>> = {
  async shout({ payload }, { signal, emit }) {
    const words = payload.text.toUpperCase().split(" ");
    for (const word of payload.slowly ? words : [])
      await emit(word).then(() => sleep(200, undefined, { signal }));
    return words.join(" ");
  },
};

const leases = (process.env.OUTLAST_SERVER ?? "http://127.0.0.1:5278") + "/api/v1/leases";
const key = process.env.OUTLAST_KEY;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };
const worker = `ts-${hostname()}-${process.pid}`;
const leaving = new AbortController(); // SIGTERM: take nothing more, let what runs come to its end
process.once("SIGTERM", () => leaving.abort());
// A busy server and a lost reply are met by the same call again.
async function call(path: string, body: object, signal?: AbortSignal): Promise<any> {
  for (;;) {
    const request = fetch(leases + path, { method: "POST", headers, body: JSON.stringify(body), signal });
    const reply = await request.catch(() => null);
    const answer = await reply?.json().catch(() => null);
    if (answer && reply!.ok) return answer;
    if (answer && reply!.status < 500) throw Object.assign(new Error(answer.detail), answer);
    await sleep(1000, undefined, { signal });
  }
}

async function run(lease: string, task: Task): Promise<void> {
  const stop = new AbortController();
  const tell = (verb: string, body: object = {}) => call(`/${lease}/${verb}`, body);
  const keep = (verb: string, body?: object) => // every answer may say that the task is cancelled
    tell(verb, body).then(({ cancel }) => { if (cancel) stop.abort({ cancel }); }, (e) => stop.abort(e));
  const beat = setInterval(keep, 3000, "heartbeat");
  try {
    const result = await handlers[task.type](task, { signal: stop.signal, emit: (chunk) => keep("emit", { chunk }) });
    await tell("complete", { result });
  } catch (error: any) {
    const why = stop.signal.aborted ? stop.signal.reason : error;
    if (why.code === "lease_lost") console.error(`${task.id}: lost, stopped`); // it is another's now
    else if (why.cancel) await tell("release"); // which is its end, since it is to be cancelled
    else await tell("fail", { error: { type: why.name, message: why.message, traceback: why.stack } });
  } finally { clearInterval(beat); }
}

await Promise.all(Array.from({ length: 4 }, async () => {
  while (!leaving.signal.aborted) {
    const ask = { worker, types: Object.keys(handlers), queues: ["ts"], wait: 20, token: randomUUID() };
    const claim = await call("", ask, leaving.signal).catch((e) => { if (!leaving.signal.aborted) throw e; });
    for (const { lease, task } of claim?.items ?? []) await run(lease, task).catch(console.error);
  }
}));
