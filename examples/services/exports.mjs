// A service on Redis Streams in JavaScript, on a bare socket: takes `data.*` tasks, and answers them.
//
//     STREAMS=redis://127.0.0.1:6379 node exports.mjs worker-1
import { connect } from "node:net";
import { randomUUID } from "node:crypto";

const [CREATE, GROUP, ME] = ["agent:stream:task.create", "data-group", process.argv[2]];
const { hostname, port } = new URL(process.env.STREAMS);
const socket = connect({ host: hostname, port: Number(port || 6379) });
let data = Buffer.alloc(0), wake = () => {};
socket.on("data", (chunk) => { data = Buffer.concat([data, chunk]); wake(); });

async function bytes(enough) { // the next bytes of the reply, once there are enough
  let n;
  while ((n = enough(data)) < 0) await new Promise((done) => (wake = done));
  const found = data.subarray(0, n);
  data = data.subarray(n);
  return found.toString();
}

async function reply() {
  const line = (await bytes((d) => (d.includes("\r\n") ? d.indexOf("\r\n") + 2 : -1))).slice(0, -2);
  const n = Number(line.slice(1));
  if (line[0] === "-") throw new Error(line.slice(1));
  if (line[0] === "$") return n < 0 ? null : (await bytes((d) => (d.length < n + 2 ? -1 : n + 2))).slice(0, -2);
  if (line[0] !== "*") return line.slice(1);
  if (n < 0) return null;
  const items = [];
  for (let i = 0; i < n; i++) items.push(await reply());
  return items;
}

function ask(...parts) {
  socket.write(`*${parts.length}\r\n` + parts.map((p) => `$${Buffer.byteLength(p)}\r\n${p}\r\n`).join(""));
  return reply();
}

async function work(id, fields) {
  const task = JSON.parse(fields[fields.indexOf("data") + 1]);
  if (task.task_type.startsWith("data.")) {
    const result = { rows: task.params.source.length, format: task.params.format ?? "csv" };
    const told = { task_id: task.task_id, fence: task.fence, status: "success", result };
    await ask("XADD", "agent:stream:task.completed", "*", "event_id", randomUUID(), "event_type", "task.completed",
      "timestamp", new Date().toISOString(), "data", JSON.stringify(told));
  }
  await ask("XACK", CREATE, GROUP, id);
}

await ask("XGROUP", "CREATE", CREATE, GROUP, "0", "MKSTREAM").catch(() => {}); // a colleague was first
for (;;) {
  const old = await ask("XAUTOCLAIM", CREATE, GROUP, ME, process.env.IDLE_MS ?? "30000", "0", "COUNT", "5");
  const found = await ask("XREADGROUP", "GROUP", GROUP, ME, "COUNT", "5", "BLOCK", "1000", "STREAMS", CREATE, ">");
  for (const [id, fields] of [...old[1], ...(found?.[0][1] ?? [])]) await work(id, fields);
}
