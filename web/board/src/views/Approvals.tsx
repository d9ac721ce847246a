// What tasks ask people.

import { client } from "../api.ts";
import { useRead } from "../state/reads.ts";
import { Question } from "../ui/Question.tsx";
import { Empty, Loaded, Panel } from "../ui/show.tsx";

export function Approvals() {
  const read = useRead("approvals", [], () => client.approvals({ limit: 100 }));
  return (
    <>
      <h1>Approvals</h1>
      <Loaded read={read}>
        {({ items }) => items.length === 0
          ? <Panel><Empty>Nobody asks anything. A task does it with <code>ctx.ask(…)</code>, and holds no worker while it waits.</Empty></Panel>
          : items.map((asked) => <Question key={asked.task_id} asked={asked} />)}
      </Loaded>
    </>
  );
}
