//! What pickle calls to make again what came from a store.

use pyo3::prelude::*;

use super::queue::Queue;
use super::recipe::Recipe;
use super::store::Store;
use super::tabular::tabular;
use super::topic::Topics;

/// The store, or a topic of it, a queue of that, or a slice of that between two queue offsets.
#[pyfunction(name = "_part")]
#[pyo3(signature = (store, topic=None, queue_id=None, start=None, stop=None, /))]
pub(super) fn part<'py>(
    store: &Bound<'py, PyAny>,
    topic: Option<&str>,
    queue_id: Option<i32>,
    start: Option<i64>,
    stop: Option<i64>,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, store) = (store.py(), opened(store)?);
    let handle = &store.get().handle;
    let Some(topic) = topic else {
        return Ok(store.into_any());
    };
    // Looked up, so that one that is missing here is a KeyError and not an empty answer.
    let found = Topics::new(handle.clone()).topic(py, topic)?;
    let Some(queue_id) = queue_id else {
        return Ok(found.into_any());
    };
    let queue = Queue::new(handle.clone(), topic.to_owned(), queue_id);
    Ok(match start.zip(stop) {
        None => tabular(py, queue)?.into_any(),
        Some((start, stop)) => tabular(py, queue.same_slice(py, start..stop)?)?.into_any(),
    })
}

/// The topics of the store.
#[pyfunction(name = "_topics")]
#[pyo3(signature = (store, /))]
pub(super) fn topics(store: &Bound<'_, PyAny>) -> PyResult<Topics> {
    Ok(Topics::new(opened(store)?.get().handle.clone()))
}

/// The store that pickle has made of a recipe, or one that is opened by the recipe itself: `copy.copy` gives that.
fn opened<'py>(store: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Store>> {
    match store.cast::<Recipe>() {
        Ok(recipe) => Ok(recipe.get().open(store.py())?.cast_into::<Store>()?),
        Err(_) => Ok(store.cast::<Store>()?.clone()),
    }
}
