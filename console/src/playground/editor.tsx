// A field for text with faults underlined: the marks lie in a copy of the text behind the field.
import { type RefObject, useMemo, useRef } from "react";
import { type Mark, pieces } from "./marks";

interface Props {
  text: string;
  marks: Mark[];
  onChange: (text: string) => void;
  field: RefObject<HTMLTextAreaElement | null>;
}

/** tooLong is from where on the marks are left out, because each key would draw them anew. */
const tooLong = 200_000;

export function Editor({ text, marks, onChange, field }: Props) {
  const behind = useRef<HTMLPreElement>(null);
  const shown = useMemo(() => (text.length > tooLong ? [] : pieces(text, marks)), [text, marks]);
  return (
    <div className="editor">
      <pre ref={behind} aria-hidden="true">
        {shown.map((p, i) =>
          p.level ? (
            <mark key={i} className={p.level}>
              {p.text}
            </mark>
          ) : (
            p.text
          ),
        )}
        {"\n"}
      </pre>
      <textarea
        ref={field}
        className="code"
        aria-label="Plan"
        aria-describedby="findings"
        placeholder="Paste what a model wrote about how to solve something."
        spellCheck={false}
        value={text}
        onChange={(e) => onChange(e.target.value)}
        onScroll={(e) => {
          if (behind.current) {
            behind.current.scrollTop = e.currentTarget.scrollTop;
            behind.current.scrollLeft = e.currentTarget.scrollLeft;
          }
        }}
      />
    </div>
  );
}
