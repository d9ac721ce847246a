// Tasks in lists, with what the log knows newer than the record.

import type { Task } from "../api.ts";
import { overlay } from "../state/board.ts";
import { useSeen } from "../state/live.ts";
import { Progress } from "./show.tsx";

/** The record as it is now; only who shows this task is painted again. */
export const useNow = (task: Task): Task => overlay(task, useSeen(task.id));

/** How far it is; or what went wrong. */
export function TaskProgress({ task: read }: { task: Task }) {
  const task = useNow(read);
  if (task.status === "running" && task.progress) {
    return <Progress percent={task.progress.percent} message={task.progress.message} />;
  }
  if (task.error && task.status !== "completed") {
    return <span className="wrong clip" title={task.error.message}>{task.error.type}: {task.error.message}</span>;
  }
  if (task.status === "cancelled") return <span className="soft clip">{task.reason}</span>;
  return null;
}
