// What a program does with a server, against a real one.

import { readFileSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { afterEach, expect, inject, test } from "vitest";
import { WebSocket } from "ws";
import { SCHEMA, types } from "../generate.mjs";
import { ApiError, Client, exact, type Notice, type OutlastEvent, TaskFailed, Unreachable, WaitTimeout } from "../src/index.ts";

const url = inject("address");
const client = new Client({ url, WebSocket: WebSocket as unknown as typeof globalThis.WebSocket });
const closing: (() => void)[] = [];

afterEach(() => {
  for (const close of closing.splice(0)) close();
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Between client and server: what to do with each connection, by its number. */
async function between(script: (number: number) => number | string | undefined): Promise<string> {
  let connections = 0;
  const sockets = new Set<Socket>();
  const server: Server = createServer((near) => {
    connections += 1;
    sockets.add(near);
    near.on("error", () => undefined);
    const todo = script(connections);
    if (typeof todo === "string") {
      near.once("data", () => near.end(todo));
      return;
    }
    let left = todo ?? Number.POSITIVE_INFINITY;
    const far = new (near.constructor as typeof Socket)().connect(Number(new URL(url).port), "127.0.0.1");
    sockets.add(far);
    far.on("error", () => near.destroy());
    far.on("end", () => near.end());
    far.on("data", (data) => {
      near.write(data.subarray(0, left));
      left -= data.length;
      if (left <= 0) near.destroySoon();
    });
    near.on("data", (data) => far.write(data));
    near.on("close", () => far.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}`;
}

test("the types are those of the server", async () => {
  const document = await (await fetch(`${url}/openapi.json`)).json();
  const told = readFileSync(SCHEMA, "utf8");
  expect(told === (await types(document)), "run: npm run api").toBe(true);
});

test("a task is handed over and its result fetched", async () => {
  const task = await client.enqueue("add", { a: 2, b: 3 }, { tags: ["x"], priority: "high" });
  expect([task.existing, task.priority, task.tags]).toEqual([false, 1, ["x"]]);
  expect(await client.result<number>(task.id, { timeoutMs: 20_000 })).toBe(5);
  expect((await client.why(task.id)).spent).not.toBeNull();
});

test("numbers of any length stay what they are, when one says so", async () => {
  const exactly = new Client({ url, json: exact });
  const long = 2n ** 64n + 1n;
  const payload = { a: long, b: -2 };
  const { id } = await exactly.enqueue("add", payload);
  expect(await exactly.result(id, { timeoutMs: 20_000 })).toBe(long - 2n);
  expect((await exactly.get(id)).payload).toEqual(payload);
  expect((await all(exactly.stream(id))).at(-1)?.data.result).toBe(long - 2n);
  expect(await client.result(id)).toBe(Number(long - 2n)); // rounded
  const texts = { "12345678901234567890": '12345678901234567890 "[12345678901234567890]" \\', part: 0.1234567890123456 };
  expect(exact.parse(exact.stringify(texts))).toEqual(texts);
  expect(exact.stringify([9007199254740991n, 1e21, [], { long }], 1)).toBe(JSON.stringify([9007199254740991, 1e21, [], { long: 0 }], null, 1).replace(": 0", `: ${long}`));
  expect(exact.parse(`[9007199254740991, -9007199254740993, ${long}.5, 1e400]`)).toEqual([Number.MAX_SAFE_INTEGER, -9007199254740993n, Number(long), Infinity]);
  expect(() => exact.parse(`{"a": ${long}, }`)).toThrow(SyntaxError);
});

test("a batch is in order, and pages are one iterator", async () => {
  const made = await client.enqueueMany(
    [1, 2, 3, 4, 5].map((a) => ({ type: "add", payload: { a }, delay: "1h", tags: ["page"] })),
  );
  expect(made.map((task) => task.payload.a)).toEqual([1, 2, 3, 4, 5]);
  const found = await all(client.tasks({ tag: "page", limit: 2 }));
  expect(found.map((task) => task.id).sort()).toEqual(made.map((task) => task.id).sort());
  expect(await client.matching("cancel", "tag:page")).toBe(5);
  const bulk = await client.bulk("cancel", "tag:page");
  expect(await client.result(bulk.id)).toEqual({ changed: 5 });
});

test("refusals are exceptions", async () => {
  const refused = await client.enqueue("ad").catch((error: unknown) => error);
  expect(refused).toBeInstanceOf(ApiError);
  expect(refused).toMatchObject({ status: 422, code: "unknown_type" });
  await expect(client.get("019e8d3a-5b1c-7c44-9f0e-3a1d2b4c5d6e")).rejects.toMatchObject({ isNotFound: true });
  const dead = await client.enqueue("doomed");
  await expect(client.result(dead.id)).rejects.toThrow(TaskFailed);
  const later = await client.enqueue("add", { a: 1 }, { delay: "1h" });
  await expect(client.wait(later.id, { timeoutMs: 10 })).rejects.toThrow(WaitTimeout);
  expect((await client.cancel(later.id, "enough")).reason).toBe("enough");
  await client.delete(later.id);
  await expect(new Client({ url: "http://127.0.0.1:9", retries: 0 }).queues()).rejects.toThrow(Unreachable);
});

test("a stream has every event, also when it breaks again and again", async () => {
  const task = await client.enqueue("tell", { chunks: 20 });
  const whole = await all(client.stream(task.id));
  const chunks = whole.filter((event) => event.kind === "chunk").map((event) => event.data.chunk);
  expect(chunks).toEqual(Array.from({ length: 20 }, (_, n) => `${n}\u2028`));
  expect(whole.at(-1)).toMatchObject({ kind: "done", data: { status: "completed", result: "20 chunks" } });
  const cursors = (events: OutlastEvent[]) => events.map((event) => event.cursor);
  const flaky = new Client({ url: await between((n) => (n < 8 ? 900 + 37 * n : undefined)) });
  expect(cursors(await all(flaky.stream(task.id)))).toEqual(cursors(whole));
  const rest = await all(client.stream(task.id, { after: whole[3]!.cursor }));
  expect(cursors(rest)).toEqual(cursors(whole.slice(4)));
});

test("the stream of everything ends when it is told to", async () => {
  const stop = new AbortController();
  const events = client.events({ kinds: ["done"] }, { after: "0", signal: stop.signal });
  await client.enqueue("add", { a: 1 });
  expect((await events.next()).value).toMatchObject({ kind: "done" });
  stop.abort();
  await expect(all(events)).rejects.toMatchObject({ name: "AbortError" });
});

test("what may be repeated is, and is made once", async () => {
  const busy = "HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
  const patient = new Client({ url: await between((n) => (n === 1 ? busy : undefined)) });
  expect((await patient.enqueue("add", { a: 1 })).existing).toBe(false);
  const cut = new Client({ url: await between((n) => (n === 1 ? 10 : undefined)) });
  expect((await cut.enqueue("add", { a: 1 })).existing).toBe(true);
  const never = new Client({ url: await between(() => 10) });
  const held = await client.enqueue("add", { a: 1 }, { hold: "go" });
  await expect(never.signal(held.id, "go")).rejects.toThrow(Unreachable);
  expect(await client.result(held.id)).toBe(1);
});

test("queues, limits, workers and types", async () => {
  const name = "a/b c?";
  expect((await client.pause(name)).paused).toBe(true);
  expect((await client.queues()).by_queue[name]?.paused).toBe(true);
  expect((await client.resume(name)).paused).toBe(false);
  expect((await client.setLimit("user:*", { slots: 2 })).slots).toBe(2);
  await client.deleteLimit("user:*");
  expect((await client.workers()).some((worker) => worker.alive)).toBe(true);
  expect((await client.types()).map((type) => type.type)).toContain("add");
  expect((await client.deadGroups())[0]?.error_type).toBe("Permanent");
  expect((await client.health()).status).toBe("healthy");
  expect((await client.link.call("get", "/api/v1/webhooks")).items).toEqual([]);
});

test("a workflow, and a question to people", async () => {
  const flow = await client.enqueueWorkflow({
    name: "story",
    nodes: [
      { name: "one", type: "add", payload: { a: 1, b: 2 } },
      { name: "two", type: "add", payload: { a: { $from: "one" } } },
    ],
  });
  expect(await client.result(flow.id)).toBe(3);
  const drawn = await client.workflow(flow.id);
  expect(drawn.nodes.map((node) => [node.name, node.status])).toEqual([
    ["one", "completed"],
    ["two", "completed"],
  ]);
  expect((await client.retryWorkflow(flow.id, "two")).origin).toBe(flow.id);
  await expect(client.cancelWorkflow(flow.id)).rejects.toThrow(ApiError);
  const asking = await client.enqueue("ask", {});
  let asked = await client.approvals();
  while (asked.items.length === 0) asked = await client.approvals(); // until it asks
  expect(asked.items[0]?.question).toBe("Really?");
  await client.respond(asking.id, "yes");
  expect(await client.result(asking.id)).toBe("yes");
});

test("notifications come over the socket, each once", async () => {
  const session = "s 1?";
  const stop = new AbortController();
  closing.push(() => stop.abort());
  const notices = client.notices(session, stop.signal);
  const task = await client.enqueue("add", { a: 1 }, { session_id: session });
  const notice = (await notices.next()).value as Notice;
  expect(notice).toMatchObject({ type: "task_completed", task_id: task.id });
  expect((await client.notifications(session)).items).toHaveLength(1);
  expect(await client.acknowledge(session, [notice.notification_id])).toEqual([notice.notification_id]);
  expect((await client.setPreferences(session, { push: false })).push).toBe(false);
  expect((await client.preferences(session)).push).toBe(false);
  expect((await all(client.sessionTasks(session))).map((one) => one.id)).toEqual([task.id]);
  expect((await client.token(session, { user_id: "ada" })).user_id).toBe("ada");
});

test("a worker over HTTP", async () => {
  const task = await client.enqueue("elsewhere", { to: "x" });
  const [leased] = await client.claim({ worker: "ts", queues: ["far"], types: ["elsewhere"], wait: 10 });
  expect(leased?.task.id).toBe(task.id);
  const lease = leased!.lease;
  expect((await client.heartbeat(lease)).cancel).toBeNull();
  await client.progress(lease, { percent: 50 });
  await client.emit(lease, "a word");
  expect((await client.complete(lease, { ok: true })).outcome).toBe("succeeded");
  expect(await client.result(task.id)).toEqual({ ok: true });
  await expect(client.fail(lease)).rejects.toMatchObject({ isLeaseLost: true });
});
