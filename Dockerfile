# The app in a container. By default it serves strangers (TESSEL_HOSTED=1): docs/how_to/host_a_demo.md.
#
#   docker build -t tessel-explorer .
#   docker run --rm -p 127.0.0.1:8501:8501 --memory 4g --cpus 2 tessel-explorer
#
# Inside, the server listens on all of the container's interfaces, or nothing outside could reach it. Who reaches the
# container is decided by `-p`: with 127.0.0.1 in front, only this machine does.
FROM python:3.12-slim

RUN useradd --create-home --uid 1000 tessel
USER tessel
WORKDIR /home/tessel

COPY --chown=tessel . source
RUN python -m venv environment \
    && environment/bin/pip install --no-cache-dir -c source/constraints.txt ./source \
    && rm -r source \
    && environment/bin/python -m tessel_core.scheduling.kernels.warm \
    && environment/bin/python -c "from tessel_core.placement.annealing import warm; warm()" \
    && environment/bin/tessel recommend gpt2-small --mesh h100-2 --global-batch 4 --order-seconds 0 > /dev/null

ENV TESSEL_HOSTED=1 \
    TESSEL_DATA=/tmp/tessel \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_PORT=8501 \
    STREAMLIT_SERVER_HEADLESS=true \
    STREAMLIT_SERVER_MAX_UPLOAD_SIZE=51

EXPOSE 8501
HEALTHCHECK CMD environment/bin/python -c "from urllib.request import urlopen; urlopen('http://127.0.0.1:8501/_stcore/health')"

# The installed app's own folder is the working folder, because Streamlit looks for its settings there.
CMD cd "$(environment/bin/python -c 'from tessel_core.bundle import BUNDLE; print(BUNDLE)')" \
    && exec /home/tessel/environment/bin/python -m streamlit run app.py
