// What an epic has spent and reserved, of what it may spend.
import type { Budget, Epic } from "../api/types";
import { count, dollars } from "../ui/format";

interface Amounts {
  unit: string;
  spent: number;
  reserved: number;
  hard: number | undefined;
  soft: number | undefined;
  write: (n: number) => string;
}

const width = 400;
const height = 14;

function Bar({ unit, spent, reserved, hard, soft, write }: Amounts) {
  const whole = Math.max(hard ?? 0, soft ?? 0, spent + reserved, 1);
  const text = `${unit}: ${write(spent)} spent${reserved > 0 ? `, ${write(reserved)} reserved` : ""}${hard === undefined ? ", no cap" : ` of ${write(hard)}`}`;
  const x = (n: number) => (n / whole) * width;
  return (
    <div className="budget">
      <svg viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={text}>
        <rect className="ground" width={width} height={height} rx="3" />
        <rect className={hard !== undefined && spent >= hard ? "over" : "part"} width={x(spent)} height={height} rx="3" />
        <rect className="reserved" x={x(spent)} width={x(reserved)} height={height} />
        {soft === undefined ? null : <rect className="soft" x={Math.min(x(soft), width - 2)} width="2" height={height} />}
      </svg>
      <span className="small">{text}</span>
    </div>
  );
}

function amount(text: string | undefined): number | undefined {
  return text === undefined ? undefined : Number(text);
}

export function BudgetBars({ epic, budget }: { epic: Epic; budget: Budget | undefined }) {
  return (
    <section aria-label="Budget" className="budgets">
      <Bar
        unit="Money"
        spent={Number(epic.spentNanoUsd ?? 0)}
        reserved={Number(budget?.reservedNanoUsd ?? 0)}
        hard={amount(budget?.hard?.nanoUsd ?? epic.budgetNanoUsd)}
        soft={amount(budget?.soft?.nanoUsd)}
        write={(n) => dollars(String(n)) || "$0"}
      />
      <Bar
        unit="Tokens"
        spent={Number(epic.spentTokens ?? 0)}
        reserved={Number(budget?.reservedTokens ?? 0)}
        hard={amount(budget?.hard?.tokens ?? epic.budgetTokens)}
        soft={amount(budget?.soft?.tokens)}
        write={(n) => count(n)}
      />
      {Number(epic.unpricedCalls) > 0 ? (
        <p className="small muted">{count(epic.unpricedCalls)} calls have no known price: their tokens count, and their money does not.</p>
      ) : null}
    </section>
  );
}
