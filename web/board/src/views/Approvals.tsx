// What tasks ask people.

import { useSome } from "../state/reads.ts";
import { askedBy, Question } from "../ui/Question.tsx";
import { Empty, Loaded, Panel } from "../ui/show.tsx";

export function Approvals() {
  const read = useSome("status:blocked", 500);
  return (
    <>
      <h1>Approvals</h1>
      <Loaded read={read}>
        {({ items }) => {
          const asking = items.filter((task) => askedBy(task) !== undefined);
          if (asking.length === 0) return <Panel><Empty>Nobody asks anything. A task does it with <code>ctx.ask(…)</code>, and holds no worker while it waits.</Empty></Panel>;
          return asking.map((task) => <Question key={task.id} task={task} />);
        }}
      </Loaded>
    </>
  );
}
