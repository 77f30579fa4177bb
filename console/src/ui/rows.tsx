// A long list of rows of one height, of which only those in sight are drawn.
import { type ReactNode, type UIEvent, useEffect, useRef, useState } from "react";

export const rowHeight = 28;

interface Props {
  label: string;
  count: number;
  row: (index: number) => ReactNode;
  /** follow keeps the end in sight while it is in sight. */
  follow?: boolean;
}

export function Rows({ label, count, row, follow }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const atEnd = useRef(true);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const watch = new ResizeObserver(() => setHeight(el.clientHeight));
    watch.observe(el);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    const el = box.current;
    if (el && follow && atEnd.current) el.scrollTop = count * rowHeight;
  }, [count, follow]);
  const first = Math.max(0, Math.floor(top / rowHeight) - 5);
  const last = Math.min(count, Math.ceil((top + height) / rowHeight) + 5);
  const shown = [];
  for (let i = first; i < last; i++) {
    shown.push(
      <div key={i} role="listitem" aria-setsize={count} aria-posinset={i + 1} className="row" style={{ top: i * rowHeight }}>
        {row(i)}
      </div>,
    );
  }
  const scroll = (e: UIEvent<HTMLDivElement>) => {
    const el = e.currentTarget;
    setTop(el.scrollTop);
    atEnd.current = el.scrollTop + el.clientHeight >= el.scrollHeight - rowHeight;
  };
  return (
    <div className="rows" ref={box} onScroll={scroll} tabIndex={0} role="region" aria-label={label}>
      <div role="list" aria-label={label} style={{ height: count * rowHeight, position: "relative" }}>
        {shown}
      </div>
    </div>
  );
}
