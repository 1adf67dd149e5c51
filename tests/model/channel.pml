/* SPDX-License-Identifier: BSD-3-Clause

   A channel: every call gets an outcome, and only a true one. The order of the steps comes from the
   shipped code (channel_steps.pml, written by channel_steps.cc); this file defines what each step does.
   Memory is sequentially consistent; relacy covers weaker memory.

   The worker may die at each step, and with STOPS be stopped without end; then the caller has a DEADLINE.
   No fairness is assumed: no process can continue without end while another waits for its turn.

   Deliberate mistakes: WITHOUT_WAKE, WITHOUT_LIFE_WATCH, WITHOUT_DRAIN; STOPS without DEADLINE. */

#define CALLS 2

mtype = { pending, answered, withdrawn, overdue, lost, never_started };

byte call_tail, calls_consumed, answer_tail, answers_consumed, started, recalled;
bool worker_sleeping, client_sleeping;  /* the words in shared memory */
bool worker_asleep, client_asleep;      /* the kernel's state */
bool life_owner_died;
bool stopped, killed, deadline_passed;

mtype outcome = pending;  /* of the call that the client waits for */
byte current, outcomes;
bool ran[CALLS + 1], not_run[CALLS + 1];

/* What a thread has loaded. */
bool reader_slept, again, seen_life, runs, certain;
#define worker_id 1  /* by the order of the processes below */

inline fill() { skip }
inline may_die() {
  if
  :: _pid != worker_id
  :: _pid == worker_id && killed -> goto over
  :: _pid == worker_id && !killed && !stopped
  :: _pid == worker_id && !killed && !stopped -> goto over  /* it dies here */
  fi
}

inline exchange_call_tail() { call_tail++ }
inline load_worker_sleeping() { reader_slept = worker_sleeping }
inline wake_call_tail() {
  if
  :: reader_slept -> worker_asleep = false
  :: else
  fi
}

inline exchange_answer_tail() { answer_tail++ }
inline load_client_sleeping() { client_slept = client_sleeping }
inline wake_answer_tail() {
#ifndef WITHOUT_WAKE
  if
  :: client_slept -> client_asleep = false
  :: else
  fi
#else
  skip
#endif
}

inline store_call_head() { calls_consumed++ }
inline exchange_worker_sleeping() { worker_sleeping = true }
inline store_worker_sleeping() { worker_sleeping = false }
inline look_again_call() { call_came = (call_tail != calls_consumed) }
inline sleep_worker() {
  if
  :: call_came
  :: else ->
    atomic { worker_asleep = (call_tail == calls_consumed) };
    (!worker_asleep || killed);
    worker_asleep = false
  fi
}

inline exchange_started() { started = calls_consumed }
inline load_recalled() { runs = (recalled != calls_consumed) }
inline exchange_recalled() { recalled = current }
inline load_started() { certain = (started < current) }

inline set_outcome(what) {
  d_step {
    assert(outcome == pending);
    outcome = what;
    outcomes++;
    assert(!(ran[current] && (what == never_started || what == withdrawn)));
    /* What was completed is delivered. */
    assert(!(answer_tail >= current && (what == never_started || what == lost)))
  }
}

inline deliver() {
  d_step {
    do
    :: answers_consumed < answer_tail ->
      answers_consumed++;
      if
      :: answers_consumed == current && outcome == pending ->
        outcome = (not_run[current] -> withdrawn : answered);
        outcomes++
      :: else
      fi
    :: else -> break
    od
  }
}
inline has_outcome() {
  if
  :: outcome != pending -> goto have_outcome
  :: else
  fi
}
inline worker_died() {
  if
  :: life_owner_died -> goto dead_worker
  :: else
  fi
}
inline settle() {
  if
  :: outcome == pending && started >= current -> set_outcome(lost)
  :: outcome == pending && started < current -> set_outcome(never_started)
  :: else
  fi
}
inline leaves() {
  if
  :: deadline_passed -> goto give_up
  :: else
  fi
}
inline watch() { seen_life = life_owner_died }
inline exchange_client_sleeping() { client_sleeping = true }
inline store_client_sleeping() { client_sleeping = false }
inline look_again_ready() { again = (answer_tail != answers_consumed) }
inline look_again_worker_died() { again = again || life_owner_died }
inline sleep_client() {
  if
  :: again
  :: else ->
    atomic {
#ifndef WITHOUT_LIFE_WATCH
      client_asleep = (answer_tail == answers_consumed && life_owner_died == seen_life)
#else
      client_asleep = (answer_tail == answers_consumed)
#endif
    };
    (!client_asleep || deadline_passed);
    client_asleep = false
  fi
}

#include "channel_steps.pml"

active proctype client() {
  current = 1;
  do
  :: current <= CALLS ->
    outcome = pending;
    publish_call();
    do
    :: idle_turn()
    od;
give_up:
    recall_call();
    if
    :: certain -> set_outcome(withdrawn)
    :: else -> set_outcome(overdue); killed = true
    fi;
    goto have_outcome;
dead_worker:
#ifdef WITHOUT_DRAIN
    settle();
#else
    worker_is_dead();
#endif
have_outcome:
    current++
  :: else -> break
  od;
over:
  skip
}

active proctype worker() {
  bool client_slept, call_came;
  assert(_pid == worker_id);
  do
  :: call_tail != calls_consumed ->
    may_die();
    consume_call();
    start_call();
    if
    :: runs -> ran[calls_consumed] = true
    :: else -> not_run[calls_consumed] = true
    fi;
    may_die();
    publish_answer()
  :: call_tail == calls_consumed -> worker_sleeps()
  od;
over:
  /* The kernel marks the liveness word and wakes the threads that sleep on it. */
  life_owner_died = true;
#ifndef WITHOUT_LIFE_WATCH
  client_asleep = false
#endif
}

#ifdef STOPS
active proctype somebody() { stopped = true }
#endif
#ifdef DEADLINE
active proctype clock() { deadline_passed = true }
#endif

ltl every_call_has_an_outcome { <> (outcomes == CALLS) }
