// The page: one snapshot, then the log. What the log tells is folded into the board; what it does
// not tell (counts, tasks that are new here) is read again, at most once a second.

const STATUSES = ["running", "ready", "retrying", "scheduled", "throttled", "blocked", "stalled",
  "dead", "cancelled", "completed"];
const FINAL = new Set(["completed", "cancelled", "dead"]);
const AGAIN = new Set(["dead", "cancelled", "retrying"]);
const KINDS = ["state", "progress", "rollback", "done", "reset"];
const PAGE = 100;

const $ = (id) => document.getElementById(id);
const board = { tasks: new Map(), counts: {}, filter: null, limit: PAGE, next: null, open: null };
const rows = new Map();

// Server ------------------------------------------------------------------------------------------

async function call(path, { method = "GET", body } = {}) {
  const options = { method, headers: { accept: "application/json" } };
  if (body !== undefined) {
    options.headers["content-type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const reply = await fetch(`api/v1/${path}`, options);
  const told = reply.status === 204 ? null : await reply.json();
  if (reply.status === 401) $("login").hidden = false;
  if (!reply.ok) throw new Error(told.detail ?? reply.statusText);
  return told;
}

async function attempt(work) {
  try {
    const told = await work();
    $("notice").hidden = true;
    return told;
  } catch (error) {
    $("notice").textContent = error instanceof TypeError ? "The server does not answer." : error.message;
    $("notice").hidden = false;
    return undefined;
  }
}

// Once now, and whatever comes meanwhile once more, a second later.
function atMostEachSecond(work) {
  let busy = false, again = false;
  return function run() {
    if (busy) { again = true; return; }
    busy = true;
    Promise.allSettled([attempt(work), new Promise((done) => setTimeout(done, 1000))]).then(() => {
      busy = false;
      if (again) { again = false; run(); }
    });
  };
}

const readTasks = atMostEachSecond(async () => {
  const filter = board.filter, status = filter ? `&status=${filter}` : "";
  const page = await call(`tasks?limit=${board.limit}${status}`);
  if (filter !== board.filter) return;
  board.tasks = new Map(page.items.map((task) => [task.id, task]));
  board.next = page.next;
  paint();
});

const readCounts = atMostEachSecond(async () => {
  const [queues, workers] = await Promise.all([call("queues/status"), call("workers")]);
  board.counts = queues.states;
  const alive = workers.items.filter((worker) => worker.alive);
  const slots = alive.reduce((sum, worker) => sum + worker.slots, 0);
  const done = Object.values(queues.by_queue).reduce((sum, queue) => sum + queue.completed_per_minute, 0);
  $("health").textContent = alive.length
    ? `${alive.length} ${alive.length === 1 ? "worker" : "workers"}, ${slots} slots, ${done} completed in the last minute`
    : "No worker is running";
  paintCounts();
});

function readAll() { readTasks(); readCounts(); }

// The log -----------------------------------------------------------------------------------------

function follow(path, kinds, tell, onState = () => {}) {
  let source = null, last = null, timer = null, stopped = false, pause = 2000;
  function open() {
    const mark = last === null ? "" : `${path.includes("?") ? "&" : "?"}after=${encodeURIComponent(last)}`;
    source = new EventSource(`api/v1/${path}${mark}`);
    source.onopen = () => { pause = 2000; onState(true); };
    source.onerror = () => {
      if (stopped) return;
      onState(false);
      if (source.readyState !== EventSource.CLOSED) return;  // the browser comes back by itself
      timer = setTimeout(open, pause);
      pause = Math.min(pause * 2, 30000);
    };
    for (const kind of kinds) {
      source.addEventListener(kind, (event) => {
        last = event.lastEventId;
        tell(kind, JSON.parse(event.data));
      });
    }
  }
  open();
  return () => { stopped = true; clearTimeout(timer); source.close(); };
}

function fold(kind, event) {
  const task = board.tasks.get(event.task_id);
  if (kind === "progress") {
    if (!task) return;
    task.progress = event.progress;
  } else if (kind === "state" || kind === "done") {
    readCounts();
    if (!task || board.filter) readTasks();
    if (board.open === event.task_id) readDetail();
    if (!task) return;
    task.status = event.status;
    task.attempt = event.status === "running" ? Math.max(task.attempt, event.attempt) : task.attempt;
    if (event.error) task.error = event.error;
    if (event.status === "running" || event.redriven) task.progress = null;
  } else {
    readAll();
    return;
  }
  paintRow(task);
}

// Painting: text nodes and properties only ----------------------------------------------------------

function make(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function statusOf(name) { return make("span", `status ${name}`, name); }

function excerpt(payload) { return JSON.stringify(payload).slice(1, 200).replace(/\}$/, ""); }

function age(iso) {
  const seconds = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function span(from, to) {
  const ms = Date.parse(to) - Date.parse(from);
  return ms < 1000 ? `${ms} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 1000)} s`;
}

function paintCounts() {
  const total = STATUSES.reduce((sum, status) => sum + (board.counts[status] ?? 0), 0);
  const tiles = [[null, "all", total], ...STATUSES.map((status) => [status, status, board.counts[status] ?? 0])];
  const nav = $("counts");
  if (nav.childElementCount !== tiles.length) {
    nav.replaceChildren(...tiles.map(([status, name]) => {
      const tile = make("button", "", make("b", "", "0"), status ? statusOf(name) : make("span", "", name));
      tile.type = "button";
      tile.addEventListener("click", () => { board.filter = status; board.limit = PAGE; paintCounts(); readTasks(); });
      return tile;
    }));
  }
  tiles.forEach(([status, , count], i) => {
    const tile = nav.children[i];
    tile.firstChild.textContent = count.toLocaleString("en");
    tile.className = count ? "" : "none";
    tile.setAttribute("aria-pressed", String(board.filter === status));
  });
}

function paint() {
  for (const [id, row] of rows) if (!board.tasks.has(id)) { row.remove(); rows.delete(id); }
  let before = null;
  for (const task of board.tasks.values()) {
    paintRow(task);
    const row = rows.get(task.id), place = before ? before.nextSibling : $("rows").firstChild;
    if (row !== place) $("rows").insertBefore(row, place);
    before = row;
  }
  $("empty").hidden = board.tasks.size > 0;
  $("more").hidden = !board.next || board.limit >= 500;
}

function paintRow(task) {
  let row = rows.get(task.id);
  if (!row) {
    row = make("tr");
    row.tabIndex = 0;
    row.addEventListener("click", () => show(task.id));
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") show(task.id); });
    rows.set(task.id, row);
  }
  const told = task.progress, over = FINAL.has(task.status);
  const middle = make("td", "wide");
  if (told && !over) {
    const bar = make("progress");
    bar.max = 100;
    bar.value = told.percent;
    middle.append(bar, make("div", "small", `${Math.round(told.percent)} % ${told.message ?? ""}`));
  } else if (task.error && task.status !== "completed") {
    middle.append(make("div", "small wrong clip", `${task.error.type}: ${task.error.message}`));
  } else if (task.status === "cancelled") {
    middle.append(make("div", "small", task.reason ?? ""));
  }
  const when = make("td", "number", age(task.created_at));
  when.dataset.at = task.created_at;
  row.title = task.id;
  row.setAttribute("aria-selected", String(board.open === task.id));
  row.replaceChildren(
    make("td", "", statusOf(task.status)),
    make("td", "", make("div", "line", make("span", "type", task.type), task.queue === "default" ? "" : ` in ${task.queue}`),
      make("div", "small line", excerpt(task.payload))),
    middle,
    make("td", "number attempt", `${task.attempt} of ${task.max_attempts}`),
    when,
  );
}

// One task ----------------------------------------------------------------------------------------

let stopFollowing = () => {};
let output = null, bar = null, told = null;

function show(id) {
  location.hash = id ? `task/${id}` : "";
}

function openFromHash() {
  const id = /^#task\/([0-9a-f-]{36})$/.exec(location.hash)?.[1] ?? null;
  stopFollowing();
  stopFollowing = () => {};
  board.open = id;
  output = make("pre", "text");
  bar = make("progress");
  bar.max = 100;
  told = make("div", "small");
  for (const task of board.tasks.values()) paintRow(task);
  $("detail").hidden = id === null;
  if (id === null) return;
  $("detail").replaceChildren(make("p", "small", "Reading…"));
  readDetail();
  const stop = follow(`tasks/${id}/stream`, ["chunk", "progress", "rollback", "done"], (kind, event) => {
    if (kind === "progress") {
      paintProgress(event.progress);
    } else if (kind === "chunk") {
      output.append(typeof event.chunk === "string" ? event.chunk : `${JSON.stringify(event.chunk)}\n`);
      if (!output.isConnected) readDetail();
    } else if (kind === "rollback") {
      output.replaceChildren();
    } else if (event.result !== undefined) {
      stop();
    }
  });
  stopFollowing = stop;
}

const readDetail = atMostEachSecond(async () => {
  const id = board.open;
  if (id === null) return;
  const [task, why] = await Promise.all([call(`tasks/${id}`), call(`tasks/${id}/why`)]);
  if (id === board.open) paintDetail(task, why);
});

function paintProgress(progress) {
  bar.value = progress.percent;
  told.textContent = `${Math.round(progress.percent)} % ${progress.message ?? ""}`;
}

function part(title, ...nodes) { return make("section", "", make("h3", "", title), ...nodes); }

function json(value) { return make("pre", "", JSON.stringify(value, null, 2)); }

function action(name, label) {
  const button = make("button", "plain", label);
  button.type = "button";
  button.addEventListener("click", async () => {
    button.disabled = true;
    const id = board.open, was = stopFollowing;
    const told = await attempt(() => call(`tasks/${id}/${name}`, { method: "POST" }));
    button.disabled = false;
    if (told && name === "retry") { was(); openFromHash(); }
    readDetail();
  });
  return button;
}

function paintDetail(task, why) {
  const close = make("button", "plain", "Close");
  close.type = "button";
  close.addEventListener("click", () => show(null));
  const facts = make("dl");
  const fact = (name, value) => { if (value !== null && value !== undefined && value !== "") facts.append(make("dt", "", name), make("dd", "", String(value))); };
  fact("id", task.id);
  fact("queue", task.queue === "default" ? "" : task.queue);
  fact("created", new Date(task.created_at).toLocaleString());
  fact("worker", task.worker);
  fact("session", task.session_id);
  fact("user", task.user_id);
  fact("tags", task.tags.join(", "));
  fact("limits", task.limits.join(", "));
  fact("reason", task.reason);
  const attempts = make("ol", "", ...task.attempts.map((one) => make("li", "",
    `${one.number}. ${one.outcome} after ${span(one.started_at, one.ended_at)}`,
    one.error ? make("div", "small wrong", `${one.error.type}: ${one.error.message}`) : null)));
  if (task.progress) paintProgress(task.progress);
  const isText = typeof task.result === "string";
  $("detail").replaceChildren(
    make("div", "top", make("h2", "", task.type), statusOf(task.status),
      AGAIN.has(task.status) ? action("retry", "Retry") : null,
      FINAL.has(task.status) ? null : action("cancel", "Cancel"), close),
    make("div", "why", make("div", "", why.text), why.action ? make("div", "small", why.action) : null),
    task.progress && !FINAL.has(task.status) ? make("div", "", bar, told) : "",
    task.status === "completed" ? part("Result", isText ? make("pre", "text", task.result) : json(task.result)) : "",
    output.hasChildNodes() && !(isText && task.result === output.textContent) ? part("Output", output) : "",
    task.error && task.status !== "completed" ? part("Error", make("pre", "wrong", `${task.error.type}: ${task.error.message}`)) : "",
    part("Payload", json(task.payload)),
    task.attempts.length ? part("Attempts", attempts) : "",
    part("Facts", facts),
    task.error?.traceback && task.status !== "completed" ? part("Traceback", make("pre", "", task.error.traceback)) : "",
  );
}

// Beginning ---------------------------------------------------------------------------------------

$("more").addEventListener("click", () => { board.limit = Math.min(board.limit + PAGE, 500); readTasks(); });

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const content = $("content").value;
  const task = await attempt(() => call("tasks/summarize", { method: "POST", body: { content } }));
  if (task) { $("content").value = ""; $("ask").open = false; show(task.id); }
});

// The key goes over the wire once; from then on a cookie stands for it, which no script can read.
$("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  const key = $("key").value;
  $("key").value = "";
  if (await attempt(() => call("login", { method: "POST", body: { key } }))) location.reload();
});
$("logout").addEventListener("click", async () => {
  await attempt(() => call("logout", { method: "POST" }));
  location.reload();
});
attempt(async () => { $("logout").hidden = (await call("login")).name === "anybody"; });

addEventListener("hashchange", openFromHash);
setInterval(() => { for (const cell of document.querySelectorAll("td[data-at]")) cell.textContent = age(cell.dataset.at); }, 1000);
setInterval(readCounts, 5000);

follow(`events?kinds=${KINDS.join(",")}`, KINDS, fold, (isLive) => {
  $("live").dataset.live = isLive ? "yes" : "no";
  $("live").textContent = isLive ? "live" : "reconnecting";
  if (isLive) readAll();
});
paintCounts();
openFromHash();
attempt(async () => {
  const types = await call("types");
  $("ask").hidden = !types.items.some((one) => one.type === "summarize");
});
