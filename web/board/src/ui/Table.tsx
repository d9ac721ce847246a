// Rows of things that are alike. Wide ones scroll by themselves; the page never does.

import type { ReactNode } from "react";
import { Empty } from "./show.tsx";

export interface Column<T> {
  head: string;
  cell: (row: T) => ReactNode;
  /** Numbers stand under each other. */
  num?: boolean;
  /** Left out where there is little room. */
  wide?: boolean;
  /** Takes what room is left. */
  grow?: boolean;
}

interface Told<T> {
  label: string;
  columns: readonly Column<T>[];
  rows: readonly T[];
  id: (row: T) => string;
  empty: ReactNode;
}

export const classOf = <T,>({ num, wide, grow }: Column<T>): string =>
  [num && "num", wide && "wide", grow && "grow"].filter(Boolean).join(" ");

export function Table<T>({ label, columns, rows, id, empty }: Told<T>) {
  if (rows.length === 0) return <Empty>{empty}</Empty>;
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <caption className="hidden">{label}</caption>
        <thead>
          <tr>{columns.map((column) => <th key={column.head} className={classOf(column)} scope="col">{column.head}</th>)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)}>
              {columns.map((column) => <td key={column.head} className={classOf(column)}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
