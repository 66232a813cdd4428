------------------------------ MODULE Overtake ------------------------------
(* The rows of one identity in an outbox: messages, and cancels and reschedules ("moves") of them.   *)
(* A row's number is its revision; transactions commit in any order. A relay judges operations, the  *)
(* lowest first of those that it sees. Asked: when is one overtaken by a later one?                  *)
EXTENDS Naturals, Sequences
CONSTANTS Rows,  \* how many there are at the most
          Rule   \* what overtakes: what was "applied" to its message, or to "anyone's"; what has "finished"; or "nothing"
VARIABLES row,     \* by number
          mine,    \* of each transaction: its rows that are not committed
          applied  \* what was done to messages, in its order: <<operation, message>>
vars == <<row, mine, applied>>
Txs == {"a", "b"}
Numbers == 1..Len(row)
Seen(i, t) == \A other \in Txs \ {t} : i \notin mine[other]
Visible(i) == \A t \in Txs : i \notin mine[t]
IsLive(i) == row[i].op = "schedule" /\ row[i].state = "live"
Max(S) == IF S = {} THEN 0 ELSE CHOOSE i \in S : \A j \in S : j <= i
Message == Max({i \in Numbers : Visible(i) /\ IsLive(i)})
Init == row = <<>> /\ mine = [t \in Txs |-> {}] /\ applied = <<>>
(* The unique index: one live message. An operation names the one that its transaction sees, if any. *)
Insert(t, op, fit) ==
  /\ Len(row) < Rows
  /\ op = "schedule" => fit /\ \A i \in Numbers : ~IsLive(i)
  /\ row' = Append(row, [op |-> op, fit |-> fit, state |-> IF op = "schedule" THEN "live" ELSE "pending", revision |-> 0,
                         target |-> IF op = "schedule" THEN 0 ELSE Max({i \in Numbers : Seen(i, t) /\ IsLive(i)})])
  /\ mine' = [mine EXCEPT ![t] = @ \cup {Len(row) + 1}] /\ UNCHANGED applied
Commit(t) == mine[t] # {} /\ mine' = [mine EXCEPT ![t] = {}] /\ UNCHANGED <<row, applied>>
Publish == Message # 0 /\ row' = [row EXCEPT ![Message].state = "ended"] /\ UNCHANGED <<mine, applied>>
(* The live message is the one that the operation is about. *)
IsMeant(i) == Message # 0 /\ Message < i /\ row[i].target \in {0, Message}
Overtaken(i) ==
  CASE Rule = "applied"  -> IsMeant(i) /\ row[Message].revision > i
    [] Rule = "anyone's" -> Message # 0 /\ row[Message].revision > i
    [] Rule = "finished" -> \E j \in Numbers : j > i /\ Visible(j) /\ row[j].state \notin {"pending", "live"}
    [] OTHER -> FALSE
Answer(i, state) == row' = [row EXCEPT ![i].state = state] /\ UNCHANGED <<mine, applied>>
Judge(i) ==
  /\ Visible(i) /\ row[i].state = "pending"
  /\ \A j \in Numbers : j < i /\ Visible(j) => row[j].state # "pending"
  /\ CASE ~row[i].fit -> Answer(i, "refused")
       [] row[i].fit /\ Overtaken(i) -> Answer(i, "superseded")
       [] row[i].fit /\ ~Overtaken(i) /\ ~IsMeant(i) -> Answer(i, "told") \* how it ended, or that nobody knows
       [] OTHER -> /\ row' = [row EXCEPT ![i].state = "done", ![Message].revision = IF row[i].op = "move" THEN i ELSE @,
                                         ![Message].state = IF row[i].op = "cancel" THEN "ended" ELSE @]
                   /\ applied' = Append(applied, <<i, Message>>) /\ UNCHANGED mine
Next == \/ \E t \in Txs : Commit(t) \/ \E op \in {"schedule", "cancel", "move"}, fit \in BOOLEAN : Insert(t, op, fit)
        \/ Publish \/ \E i \in Numbers : Judge(i)
Spec == Init /\ [][Next]_vars
(* "Superseded" is said only where a later operation was applied to that message. *)
Superseded == \A i \in Numbers : row[i].state = "superseded" /\ row[i].target # 0 =>
  \E n \in 1..Len(applied) : applied[n][1] > i /\ row[i].target = applied[n][2]
(* No operation undoes a later one. *)
LaterWins == \A m, n \in 1..Len(applied) : m < n /\ applied[m][2] = applied[n][2] => applied[m][1] < applied[n][1]
=============================================================================
