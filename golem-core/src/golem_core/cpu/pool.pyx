"""A pool of workers that spin for a moment, then sleep.

The caller of `Pool.run` is worker 0; the others are threads without any Python, made at the first
run. Inside a run the workers meet at `barrier`, which spins: a stage of a program lasts some
microseconds, a wake-up by the kernel as long as several stages. Between two runs a worker spins
for `SPINS` rounds, about as long as it takes to draw a token, and then sleeps on a condition.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memset

import os
import weakref

cdef extern from "<stdatomic.h>" nogil:
    ctypedef int atomic_int
    int atomic_load_explicit(const atomic_int*, int)
    void atomic_store_explicit(atomic_int*, int, int)
    int atomic_fetch_add_explicit(atomic_int*, int, int)
    const int memory_order_relaxed
    const int memory_order_acquire
    const int memory_order_release
    const int memory_order_acq_rel
    const int memory_order_seq_cst

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_create(pthread_t*, const void*, void* (*)(void*) noexcept nogil, void*)
    int pthread_join(pthread_t, void**)
    int pthread_mutex_init(pthread_mutex_t*, const void*)
    int pthread_mutex_destroy(pthread_mutex_t*)
    int pthread_mutex_lock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_cond_init(pthread_cond_t*, const void*)
    int pthread_cond_destroy(pthread_cond_t*)
    int pthread_cond_wait(pthread_cond_t*, pthread_mutex_t*)
    int pthread_cond_broadcast(pthread_cond_t*)

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from *:
    """
    #if defined(__x86_64__) || defined(__i386__)
    #define golem_pause() __builtin_ia32_pause()
    #else
    #define golem_pause() __asm__ __volatile__("yield" ::: "memory")
    #endif
    """
    void golem_pause() nogil

cdef enum:
    MOST = 256          # workers
    SPINS = 20000       # rounds of pause before a worker sleeps: some 200 us to 1 ms, by processor
    PATIENCE = 2000     # rounds at a barrier before the core is offered to somebody else

cdef struct Seat:
    Shared* shared
    int worker
    int round

cdef struct Shared:
    int workers
    Walk walk
    void* argument
    atomic_int arrived      # workers at the barrier
    atomic_int turn         # how often the barrier has opened
    atomic_int round        # how many runs have been started
    atomic_int asleep       # workers that wait on `wake`
    atomic_int leave
    pthread_mutex_t lock
    pthread_cond_t wake
    pthread_t threads[MOST]
    Seat seats[MOST]


cdef bint arrive(Shared* shared) noexcept nogil:
    cdef int turn, spins = 0
    if shared.workers == 1:
        return True
    turn = atomic_load_explicit(&shared.turn, memory_order_acquire)
    if atomic_fetch_add_explicit(&shared.arrived, 1, memory_order_acq_rel) == shared.workers - 1:
        return True
    while atomic_load_explicit(&shared.turn, memory_order_acquire) == turn:
        golem_pause()
        spins += 1
        if spins == PATIENCE:
            sched_yield()
            spins = 0
    return False


cdef void proceed(Shared* shared) noexcept nogil:
    atomic_store_explicit(&shared.arrived, 0, memory_order_relaxed)
    atomic_fetch_add_explicit(&shared.turn, 1, memory_order_release)


cdef void barrier(Shared* shared) noexcept nogil:
    if arrive(shared):
        proceed(shared)


cdef void* serve(void* argument) noexcept nogil:
    """A worker's life: wait for the next round, walk, meet the others, wait again."""
    cdef Seat* seat = <Seat*>argument
    cdef Shared* shared = seat.shared
    cdef int spins
    while True:
        spins = 0
        while atomic_load_explicit(&shared.round, memory_order_acquire) == seat.round:
            golem_pause()
            spins += 1
            if spins >= SPINS:
                pthread_mutex_lock(&shared.lock)
                atomic_fetch_add_explicit(&shared.asleep, 1, memory_order_seq_cst)
                while atomic_load_explicit(&shared.round, memory_order_seq_cst) == seat.round:
                    pthread_cond_wait(&shared.wake, &shared.lock)
                atomic_fetch_add_explicit(&shared.asleep, -1, memory_order_seq_cst)
                pthread_mutex_unlock(&shared.lock)
        seat.round += 1
        if atomic_load_explicit(&shared.leave, memory_order_acquire):
            return NULL
        shared.walk(shared.argument, seat.worker, shared.workers)
        barrier(shared)


cdef void start_round(Shared* shared) noexcept nogil:
    """Lets the workers go; a lock is taken only when one of them sleeps."""
    atomic_fetch_add_explicit(&shared.round, 1, memory_order_seq_cst)
    if atomic_load_explicit(&shared.asleep, memory_order_seq_cst):
        pthread_mutex_lock(&shared.lock)
        pthread_cond_broadcast(&shared.wake)
        pthread_mutex_unlock(&shared.lock)


cdef class Pool:
    """`workers` workers, the caller included. One thread at a time may run it."""

    def __cinit__(self, int workers):
        if not 1 <= workers <= MOST:
            raise ValueError(f"a pool has 1 to {MOST} workers, not {workers}")
        self.workers = workers
        self.shared = <Shared*>calloc(1, sizeof(Shared))
        if self.shared == NULL:
            raise MemoryError()
        self.start()
        pools.add(self)

    def start(self):
        """Makes the threads."""
        cdef Shared* shared = self.shared
        cdef int worker
        shared.workers = self.workers
        pthread_mutex_init(&shared.lock, NULL)
        pthread_cond_init(&shared.wake, NULL)
        for worker in range(1, self.workers):
            shared.seats[worker].shared = shared
            shared.seats[worker].worker = worker
            shared.seats[worker].round = 0
            if pthread_create(&shared.threads[worker], NULL, serve, &shared.seats[worker]) != 0:
                raise MemoryError(f"no thread for worker {worker}")

    def restart(self):
        """In a forked child, where no worker lives: makes them anew."""
        memset(self.shared, 0, sizeof(Shared))
        self.start()

    cdef void run(self, Walk walk, void* argument) noexcept nogil:
        """Every worker runs ``walk(argument, worker, workers)`` once; returns when all have."""
        cdef Shared* shared = self.shared
        if self.workers == 1:
            walk(argument, 0, 1)
            return
        shared.walk = walk
        shared.argument = argument
        start_round(shared)
        walk(argument, 0, self.workers)
        barrier(shared)

    def __dealloc__(self):
        cdef int worker
        if self.shared == NULL:
            return
        atomic_store_explicit(&self.shared.leave, 1, memory_order_release)
        start_round(self.shared)
        for worker in range(1, self.workers):
            pthread_join(self.shared.threads[worker], NULL)
        pthread_cond_destroy(&self.shared.wake)
        pthread_mutex_destroy(&self.shared.lock)
        free(self.shared)


pools = weakref.WeakSet()


def _restart_all():
    for pool in pools:
        pool.restart()


os.register_at_fork(after_in_child=_restart_all)
