------------------------------- MODULE Turns -------------------------------
(* Ordered retry: a partition, one consumer at a time that may die anywhere, repetitions that wait in Redis and are published   *)
(* behind what is in the partition, and the record of each key: which of its messages are outstanding (delay/retry/order.go). *)
(* Asked: is the first success of each key's messages in the order of their first deliveries, and is none lost or held for ever? *)
EXTENDS Naturals, Sequences, FiniteSets
CONSTANTS Key,     \* of the messages, by number
          Fails, Crashes, Copies,  \* how often a handler fails, a consumer dies, the bridge publishes twice
          Late,    \* TRUE: what a dead consumer has sent may arrive later
          Rule     \* "all", or what is left out
VARIABLES log, committed, wait, sent, record, marks, pc, mine, firsts, late, budget
vars == <<log, committed, wait, sent, record, marks, pc, mine, firsts, late, budget>>
Messages == 1..Len(Key)
Keys == {Key[m] : m \in Messages}
None == [m |-> 0, h |-> 0, l |-> 0]
Here == log[committed]  \* Each delivery is acknowledged before the next one.
Range(s) == {s[i] : i \in 1..Len(s)}
Place(list, m) == IF \E i \in 1..Len(list) : list[i].m = m THEN CHOOSE i \in 1..Len(list) : list[i].m = m ELSE 0
Without(list, m) == SelectSeq(list, LAMBDA e : e.m # m)
(* What the consumer does with a delivery: the code's judge. *)
Judge(list, d) ==
  LET i == Place(list, d.m) IN
  IF i = 0 THEN IF list = <<>> \/ Rule = "tail" THEN "handle" ELSE "hold"
  ELSE IF d.h < list[i].h \/ (d.h > 0 /\ d.l # list[i].l) THEN "drop"
  ELSE IF i = 1 THEN "handle" ELSE "hold"
With(list, d) == LET i == Place(list, d.m) IN IF i = 0 THEN Append(list, d) ELSE [list EXCEPT ![i] = d]
Init ==
  /\ log = [m \in Messages |-> [m |-> m, h |-> 0, l |-> 0]] /\ committed = 1 /\ wait = {} /\ sent = {}
  /\ record = [k \in Keys |-> [mark |-> 0, list |-> <<>>]] /\ marks = 0 /\ pc = "idle" /\ mine = None
  /\ firsts = <<>> /\ late = {} /\ budget = [fails |-> Fails, crashes |-> Crashes, copies |-> Copies]
Mine == record[Key[Here.m]]
Begin ==
  /\ pc = "idle" /\ committed <= Len(log)
  /\ pc' = Judge(Mine.list, Here) /\ mine' = None /\ UNCHANGED <<log, committed, wait, sent, record, marks, firsts, late, budget>>
Succeed ==
  /\ pc = "handle" /\ firsts' = IF Here.m \in Range(firsts) THEN firsts ELSE Append(firsts, Here.m)
  /\ pc' = "remove" /\ UNCHANGED <<log, committed, wait, sent, record, marks, mine, late, budget>>
Fail ==
  /\ pc = "handle" /\ budget.fails > 0 /\ budget' = [budget EXCEPT !.fails = @ - 1]
  /\ pc' = "hold" /\ UNCHANGED <<log, committed, wait, sent, record, marks, mine, firsts, late>>
(* The next delivery is scheduled, in a call of its name: once. A message that is not in the record begins a new life. *)
Next(d, list) == LET i == Place(list, d.m) IN [m |-> d.m, h |-> d.h + 1, l |-> IF i = 0 THEN marks + 1 ELSE list[i].l]
ToSchedule == IF Rule = "recordfirst" THEN "scheduleLast" ELSE "hold"
Schedule ==
  /\ pc = ToSchedule
  /\ LET n == IF Rule = "recordfirst" THEN mine ELSE Next(Here, Mine.list) IN
       /\ wait' = IF n \in sent THEN wait ELSE wait \cup {n}
       /\ sent' = sent \cup {n} /\ mine' = n
  /\ marks' = marks + 1 /\ pc' = (IF Rule = "recordfirst" THEN "ack" ELSE "put")
  /\ UNCHANGED <<log, committed, record, firsts, late, budget>>
Write(k, was, list) == record' = [record EXCEPT ![k] = [mark |-> marks + 1, list |-> list]] /\ marks' = marks + 1
(* The record is put in the place of the one that was read; another one is judged again. *)
Put ==
  /\ pc = (IF Rule = "recordfirst" THEN "hold" ELSE "put")
  /\ LET n == IF Rule = "recordfirst" THEN Next(Here, Mine.list) ELSE mine IN
     /\ mine' = n
     /\ IF Judge(Mine.list, Here) = "drop" THEN pc' = "ack" /\ UNCHANGED <<record, marks, late>>
        ELSE /\ Write(Key[Here.m], Mine, With(Mine.list, n)) /\ UNCHANGED late
             /\ pc' = IF Rule = "recordfirst" THEN "scheduleLast" ELSE "ack"
  /\ UNCHANGED <<log, committed, wait, sent, firsts, budget>>
(* After a repetition the record gets a new mark, also if the message was not in it: no late write meets it. *)
Remove ==
  /\ pc = "remove" /\ pc' = "ack"
  /\ IF Place(Mine.list, Here.m) = 0 /\ (Here.h = 0 \/ Rule = "unmarked") THEN UNCHANGED <<record, marks>> ELSE Write(Key[Here.m], Mine, Without(Mine.list, Here.m))
  /\ UNCHANGED <<log, committed, wait, sent, mine, firsts, late, budget>>
Ack ==
  /\ pc \in {"ack", "drop"} /\ committed' = committed + 1 /\ pc' = "idle"
  /\ UNCHANGED <<log, wait, sent, record, marks, mine, firsts, late, budget>>
(* What it has sent to Redis may still be on its way. *)
Crash ==
  /\ pc # "idle" /\ budget.crashes > 0 /\ budget' = [budget EXCEPT !.crashes = @ - 1] /\ pc' = "idle"
  /\ late' = IF Late /\ pc = "put" THEN late \cup {[k |-> Key[Here.m], mark |-> Mine.mark, list |-> With(Mine.list, mine)]} ELSE late
  /\ UNCHANGED <<log, committed, wait, sent, record, marks, mine, firsts>>
Arrive == \E w \in late :
  /\ late' = late \ {w}
  /\ IF record[w.k].mark = w.mark THEN Write(w.k, w.mark, w.list) ELSE UNCHANGED <<record, marks>>
  /\ UNCHANGED <<log, committed, wait, sent, pc, mine, firsts, budget>>
Publish == \E d \in wait :
  /\ log' = Append(log, d)
  /\ \/ wait' = wait \ {d} /\ UNCHANGED budget
     \/ budget.copies > 0 /\ budget' = [budget EXCEPT !.copies = @ - 1] /\ UNCHANGED wait
  /\ record' = IF Rule = "waiting" THEN [record EXCEPT ![Key[d.m]].list = SelectSeq(@, LAMBDA e : e.m # d.m)] ELSE record
  /\ UNCHANGED <<committed, sent, marks, pc, mine, firsts, late>>
NextStep == Begin \/ Succeed \/ Fail \/ Schedule \/ Put \/ Remove \/ Ack \/ Crash \/ Arrive \/ Publish
Spec == Init /\ [][NextStep]_vars
(* The first successes of a key's messages are in their order. *)
InOrder == \A i, j \in 1..Len(firsts) : i < j /\ Key[firsts[i]] = Key[firsts[j]] => firsts[i] < firsts[j]
ToCome == wait \cup {log[i] : i \in committed..Len(log)}
Kept == \A m \in Messages : m \in Range(firsts) \/ \E d \in ToCome : d.m = m
(* What holds others back comes. *)
Comes == \A k \in Keys : \A e \in Range(record[k].list) : \E d \in ToCome : d.m = e.m /\ d.l = e.l /\ d.h >= e.h
Bounded == Len(log) <= 12
TwoKeys == <<"a", "a", "b">>
OneKey == <<"a", "a", "a">>
=============================================================================
