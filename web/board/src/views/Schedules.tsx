// What the clock enqueues: the next 24 hours, stop and go, and once out of turn.

import { link, type Shapes } from "../api.ts";
import { clock } from "../format.ts";
import { go } from "../router.ts";
import { now } from "../state/clock.ts";
import { useMay, useRead } from "../state/reads.ts";
import { useSettings } from "../state/settings.ts";
import { Act } from "../ui/act.tsx";
import { Ago, Empty, Facts, Loaded, Panel, Tag, TaskLink, Until } from "../ui/show.tsx";

type Schedule = Shapes["Schedule"];
const AT = "/api/v1/schedules/{schedule}";
const DAY_MS = 86_400_000;
const AHEAD = 100; // every quarter of an hour, for a day

export function Schedules() {
  const read = useRead("schedules", [], () => link.call("get", "/api/v1/schedules", { query: { ahead: AHEAD } }), 60_000);
  return (
    <>
      <h1>Schedules</h1>
      <Loaded read={read}>
        {({ items }) => items.length === 0
          ? <Panel><Empty>Nothing is scheduled. <code>@app.task(every="0 9 * * mon-fri")</code> does it in code.</Empty></Panel>
          : <><Day schedules={items} />{items.map((one) => <One key={one.name} schedule={one} />)}</>}
      </Loaded>
    </>
  );
}

/** What comes when; what comes too often to be told apart is one bar. */
function Day({ schedules }: { schedules: readonly Schedule[] }) {
  const { utc } = useSettings();
  const begin = now();
  const hours = [0, 6, 12, 18, 24];
  return (
    <Panel title="The next 24 hours">
      <div className="day">
        {schedules.map(({ name, next, paused }) => {
          const due = next.map((at) => (Date.parse(at) - begin) / DAY_MS).filter((share) => share >= 0 && share <= 1);
          const told = paused ? "paused" : due.length === 0 ? "none in 24 h" : "";
          return (
            <div key={name} className="lane">
              <span className="clip">{name}</span>
              <span className="dots" role="img" aria-label={`${name}: ${told || next.slice(0, 3).map((at) => clock(at, utc)).join(", ")}`}>
                {due.length === AHEAD ? <i className="often" style={{ left: `${Math.min(...due) * 100}%` }} /> : due.map((share) => <i key={share} style={{ left: `${share * 100}%` }} />)}
                {told ? <span className="soft">{told}</span> : null}
              </span>
            </div>
          );
        })}
        <div className="lane soft num"><span /><span className="hours">{hours.map((hour) => <span key={hour}>{clock(begin + (hour * DAY_MS) / 24, utc)}</span>)}</span></div>
      </div>
    </Panel>
  );
}

/** A cron line as it is; a span as "every 6h". */
const words = ({ every, at }: Schedule): string => (every === null || /[ @]/.test(every) ? (every ?? at ?? "") : `every ${every}`);

function One({ schedule }: { schedule: Schedule }) {
  const operates = useMay("operate");
  const path = { schedule: schedule.name };
  const { name } = schedule;
  const run = async () => {
    const task = await link.call("post", `${AT}/run`, { path });
    go(`/tasks/${task.id}`);
    return `${name} was fired out of turn.`;
  };
  return (
    <section className="panel" data-schedule={name}>
      <header>
        <h2>{name} {schedule.type === name ? null : <span className="soft">{schedule.type}</span>} {schedule.paused ? <Tag tone="warn">paused</Tag> : null}</h2>
        {operates ? (
          <div className="actions">
            <Act label={`Run now: ${name}`} work={run}>Run now</Act>
            {schedule.paused
              ? <Act tone="primary" label={`Resume ${name}`} work={async () => { await link.call("post", `${AT}/resume`, { path }); return `${name} fires again.`; }}>Resume</Act>
              : <Act label={`Pause ${name}`} work={async () => { await link.call("post", `${AT}/pause`, { path }); return `${name} fires no more; what falls into the pause is not made up for.`; }}>Pause</Act>}
            {schedule.source === "people"
              ? <Act tone="danger" label={`Delete ${name}`} sure="What it has enqueued stays." work={async () => { await link.call("delete", AT, { path }); return `${name} is deleted.`; }}>Delete</Act> : null}
          </div>
        ) : null}
      </header>
      {schedule.error ? <p className="wrong">{schedule.error}</p> : null}
      <div className="halves">
      <Facts facts={[
        ["When", <><code>{words(schedule)}</code> <span className="soft">{schedule.tz}</span></>],
        ["Next", schedule.next[0] ? <Until key="n" at={schedule.next[0]} /> : schedule.paused ? "not while it is paused" : "never again"],
        ["Last", schedule.last_at ? <><Ago at={schedule.last_at} /> ago {schedule.last_task ? <TaskLink id={schedule.last_task} /> : null}</> : "not yet"],
      ]} />
      <Facts facts={[
        ["When missed", schedule.catch_up],
        ["Overlap", schedule.overlap],
        ["Given by", schedule.source],
      ]} />
      </div>
    </section>
  );
}
