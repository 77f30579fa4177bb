// A list of what is known of something: what is empty is left out.
import type { ReactNode } from "react";

export function Fact({ name, children }: { name: string; children: ReactNode }) {
  if (children === undefined || children === null || children === "" || children === false) return null;
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}
