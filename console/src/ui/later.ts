import { useEffect, useState } from "react";

const pause = 250;

/** useLater is a value that somebody types, once they have stopped for a moment. */
export function useLater<T>(value: T): T {
  const [later, setLater] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), pause);
    return () => clearTimeout(timer);
  }, [value]);
  return later;
}
