"""Other Python packages' views of the same boards, for those who have them: `pyxrt_route` (XRT's
own module: boards, their facts and sensors) and `pynq_route` (overlay and buffers as PYNQ's
objects, for notebooks). Neither is needed by anything else, and nothing is imported before a
function is called: both packages touch the hardware when they are."""
